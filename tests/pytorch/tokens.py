"""Compares the tokens of `lockstep data pack --tokenizer` with those of Hugging Face's tokenizers, for random texts.

`python tests/pytorch/tokens.py LOCKSTEP [TEXTS]` trains tokenizers of the published kinds on the text that ships, packs random texts
of many scripts with each, and compares token by token; it exits with 1 at the first difference.
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

MARK = "▁"
DATA = pathlib.Path(__file__).parents[2] / "data"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Ranges of characters, of which texts are drawn: Latin with accents to compose, Greek to Cyrillic, Devanagari, spaces, Han and kana,
# numbers of other scripts, pictures, letters in styles.
RANGES = [
    (32, 126), (32, 126), (9, 13), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x4FF), (0x900, 0x97F), (0x2000, 0x206F),
    (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0x2150, 0x218B), (0x1F300, 0x1F64F), (0x1D400, 0x1D7FF),
]
PARTS = ["In the beginning", "'s", "'LL ", "'ſ", "  \n\n ", "\r\n", "12345", "<|endoftext|>", "<|end|>", "<|end|>x", " the", "\t\t"]


def split(digits):
    """How Llama 3 and Qwen cut texts."""
    steps = [
        pre_tokenizers.Split(Regex(CL100K % digits), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return pre_tokenizers.Sequence(steps)


def kinds():
    """Names and files of tokenizers."""
    text = " ".join(chr(code) for low, high in RANGES for code in range(low, high) if code % 3)
    yield "shipped", Tokenizer.from_file(str(DATA / "new-testament-tokenizer.json"))
    byte_level = pre_tokenizers.ByteLevel
    for name, pre, normalizer, ignores in [
        ("gpt2", byte_level(add_prefix_space=False), None, False),
        ("roberta", byte_level(add_prefix_space=True), None, False),
        ("llama-3", split("{1,3}"), None, True),
        ("qwen", split(""), normalizers.NFC(), False),
        ("whole", byte_level(add_prefix_space=False, use_regex=False), None, False),
    ]:
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignores))
        tokenizer.pre_tokenizer, alphabet = pre, sorted(byte_level.alphabet())
        if normalizer:
            tokenizer.normalizer = normalizer
        trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([text, "In the beginning 12345 1234567 don't DON'T\n\n \n" * 9] * 3, trainer)
        tokenizer.add_special_tokens(["<|endoftext|>", "<|end|>"])
        tokenizer.add_tokens([AddedToken("beginn", normalized=True)])
        yield name, tokenizer


def marked():
    """Names and files of tokenizers that mark spaces, with bytes for what is no token."""
    text = " ".join(chr(code) for low, high in RANGES for code in range(low, high) if code % 3)
    replace, metaspace = normalizers.Replace(" ", MARK), pre_tokenizers.Metaspace
    for name, normalizer, pre in [
        ("llama-2", normalizers.Sequence([normalizers.Prepend(MARK), replace]), None),
        ("gemma", replace, pre_tokenizers.Split(" ", "merged_with_previous")),
        ("mistral", None, metaspace(replacement=MARK, prepend_scheme="first", split=False)),
        ("words", None, metaspace(replacement=MARK, prepend_scheme="always", split=True)),
    ]:
        drawn = Tokenizer(models.BPE())
        drawn.pre_tokenizer = metaspace(replacement=MARK)
        trainer = trainers.BpeTrainer(vocab_size=1500, limit_alphabet=700, show_progress=False)
        drawn.train_from_iterator([text, "In the beginning 12345 1234567 don't DON'T\n\n \n" * 9] * 3, trainer)
        model = json.loads(drawn.to_str())["model"]
        first = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
        tokens = first + sorted(model["vocab"], key=model["vocab"].get)
        merges = [tuple(pair) for pair in model["merges"]]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre:
            tokenizer.pre_tokenizer = pre
        tokenizer.add_special_tokens(["<|endoftext|>", AddedToken("<|end|>", normalized=name == "llama-2", special=True)])
        yield name, tokenizer


def draw(random_numbers):
    """A random text."""

    def part():
        low, high = random_numbers.choice(RANGES)
        letters = "".join(chr(random_numbers.randint(low, high)) for _ in range(random_numbers.randint(1, 5)))
        return random_numbers.choice([letters, letters, random_numbers.choice(PARTS)])

    return "".join(part() for _ in range(random_numbers.randint(1, 40)))


def packed(path):
    """The documents of a packed set."""
    content = path.read_bytes()
    _, width, tokens, documents, _, _, tokenizer = struct.unpack_from("<IIQQIIQ", content, 8)
    numbers = struct.unpack_from(f"<{tokens}{'H' if width == 2 else 'I'}", content, 4096)
    borders = struct.unpack_from(f"<{documents}Q", content, len(content) - tokenizer - 8 * documents)
    return [list(numbers[start:end]) for start, end in zip(borders, [*borders[1:], tokens])]


def main():
    lockstep, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    random_numbers = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        texts = [draw(random_numbers) for _ in range(count)]
        files = [folder / f"{number}.txt" for number in range(count)]
        for path, text in zip(files, texts):
            path.write_bytes(text.encode())
        for name, tokenizer in [*kinds(), *marked()]:
            (folder / "tokenizer.json").write_text(tokenizer.to_str())
            call = [lockstep, "data", "pack", "--text", *map(str, files), "--tokenizer", str(folder / "tokenizer.json")]
            subprocess.run([*call, "--out", str(folder / "set.pack"), "--format", "json", "--quiet"], check=True, capture_output=True)
            end = tokenizer.token_to_id("<|endoftext|>")
            documents = packed(folder / "set.pack")
            assert len(documents) == count, f"{name}: {len(documents)} documents"
            for text, document in zip(texts, documents):
                wanted = tokenizer.encode(text, add_special_tokens=False).ids + [end]
                if wanted != document:
                    print(f"{name}: {text!r}: {document} is not {wanted}")
                    sys.exit(1)
            print(f"{name}: {sum(map(len, documents))} tokens of {count} texts are those of Hugging Face")


main()
