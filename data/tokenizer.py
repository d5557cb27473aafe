"""Trains the tokenizer that ships with lockstep, new-testament-tokenizer.json, on new-testament.txt.gz beside it.

Needs PyPI's tokenizers 0.23.3: `python data/tokenizer.py` rewrites the file, with the same bytes.
"""

import gzip
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent
VOCABULARY = 1024


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = gzip.decompress((FOLDER / "new-testament.txt.gz").read_bytes()).decode()
    tokenizer.train_from_iterator([text], trainer)
    (FOLDER / "new-testament-tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n")


main()
