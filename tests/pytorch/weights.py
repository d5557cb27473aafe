"""Trains small decoders of transformers from one safetensors file here and there, and loads what lockstep has written.

Each architecture's model is drawn and saved by transformers: `config.json` and `model.safetensors`. Both sides then train on one
batch, with SGD at a rate of 1 for one step, whose change is the gradient, and with AdamW for ten steps; lockstep on one rank and on
several. Loss, gradient and the change after ten steps are held beside transformers in 64 bits: our distance may be 3 times that of
its 32-bit training, or 1e-4. transformers then reads the file that lockstep has written, with no tensor missing or superfluous, and
its next loss must be ours. Exits with 1 where a bound is exceeded.

    python tests/pytorch/weights.py target/release/lockstep [MODEL_TYPE ...]
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from agree import distance

BOUND = 1e-4
TIMES_OWN = 3
POSITIONS, SEQUENCES, VOCABULARY = 16, 4, 256
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=POSITIONS,
)
KEYS = dict(num_key_value_heads=2)
HEADS = dict(**KEYS, head_dim=8)
NO_PADDING = dict(pad_token_id=None)
WINDOW = dict(sliding_window=6)

# Of each architecture, its configuration.
MODELS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0
    ),
    "llama": lambda: transformers.LlamaConfig(**SIZES, **KEYS, attention_bias=True, mlp_bias=True),
    "mistral": lambda: transformers.MistralConfig(**SIZES, **KEYS, **WINDOW),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, **KEYS, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, **HEADS),
    "gemma": lambda: transformers.GemmaConfig(**SIZES, **HEADS, **NO_PADDING),
    "gemma2": lambda: transformers.Gemma2Config(**SIZES, **HEADS, **NO_PADDING, **WINDOW, query_pre_attn_scalar=8),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(**SIZES, **HEADS, **NO_PADDING, **WINDOW, query_pre_attn_scalar=8),
    "phi3": lambda: transformers.Phi3Config(**SIZES, **KEYS, **NO_PADDING),
    "glm4": lambda: transformers.Glm4Config(**SIZES, **HEADS, **NO_PADDING, attention_bias=True),
    "olmo2": lambda: transformers.Olmo2Config(**SIZES, **KEYS, **NO_PADDING),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SIZES),
}

# The sequences of a step on one rank, and on several.
RANKS = [
    [f"--batch-per-rank={SEQUENCES}"],
    ["--ranks=2", "--strategy=zero-3", f"--batch-per-rank={SEQUENCES // 2}"],
    ["--mesh=tensor=2", "--strategy=megatron", f"--batch-per-rank={SEQUENCES}"],
]


def loss(model, tokens: torch.Tensor) -> torch.Tensor:
    """The mean over all positions."""
    scores = model(input_ids=tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def trained(model, tokens: torch.Tensor, optimizer, steps: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The loss before each step and after the last, and how far each tensor has moved."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        now = loss(model, tokens)
        now.backward()
        optimizer.step()
        losses.append(now.item())
    with torch.no_grad():
        losses.append(loss(model, tokens).item())
    return losses, {name: value.double() - before[name].double() for name, value in model.state_dict().items()}


def optimizers(model) -> list[tuple[str, int, torch.optim.Optimizer]]:
    """SGD and AdamW, whose decay leaves out norms and biases."""
    all_of = list(model.parameters())
    groups = [
        {"params": [of for of in all_of if of.ndim > 1], "weight_decay": 0.1},
        {"params": [of for of in all_of if of.ndim < 2], "weight_decay": 0.0},
    ]
    return [("sgd", 1, torch.optim.SGD(all_of, lr=1.0)), ("adamw", 10, torch.optim.AdamW(groups, lr=1e-3))]


OURS = {
    "sgd": ["--optimizer=sgd", "--learning-rate=1", "--momentum=0", "--weight-decay=0"],
    "adamw": ["--optimizer=adamw", "--learning-rate=0.001", "--weight-decay=0.1"],
}


def run(binary: str, folder: Path, more: list[str], steps: int) -> list[float]:
    """Our losses; the weights are in `ours` then."""
    ours = folder / "ours"
    ours.mkdir(exist_ok=True)
    (folder / "m.jsonl").unlink(missing_ok=True)
    command = [
        binary, "exec", "run", "--model", folder / "config.json", "--weights", folder, "--data", f"{folder}/a.pack+{folder}/a.pack",
        "--steps", str(steps), "--save-weights", ours / "model.safetensors", "--metrics", folder / "m.jsonl", *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stderr}")
    return [json.loads(line)["loss"] for line in (folder / "m.jsonl").read_text().splitlines()]


def flat(of: dict[str, torch.Tensor], names: list[str]) -> torch.Tensor:
    return torch.cat([of[name].double().flatten() for name in names])


def compare(binary: str, name: str, folder: Path) -> bool:
    """Prints a row for each optimizer and layout of ranks; whether all are within their bounds."""
    torch.manual_seed(7)
    config = MODELS[name]()
    config._attn_implementation = "eager"
    start = transformers.AutoModelForCausalLM.from_config(config).eval()
    # Norms and biases begin apart from 1 and 0, so that each is seen to be read.
    with torch.no_grad():
        for parameter in start.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    start.save_pretrained(folder)
    text = bytes(torch.randint(VOCABULARY, (SEQUENCES * POSITIONS + 1,)).tolist())
    (folder / "a.txt").write_bytes(text)
    subprocess.run([binary, "data", "pack", "--text", folder / "a.txt", "--out", folder / "a.pack"], check=True, capture_output=True)
    windows = torch.tensor(list(text)).unfold(0, POSITIONS + 1, POSITIONS)
    begun, good = load_file(folder / "model.safetensors"), True
    names = sorted(begun)
    ours_of = dict(OURS)
    if any(of.endswith(".bias") for of in names):
        ours_of["adamw"] = [*OURS["adamw"], "--no-decay=*.bias"]
    for at, (kind, steps, _) in enumerate(optimizers(start)):
        sides = []
        for dtype in (torch.float64, torch.float32):
            model = copy.deepcopy(start).to(dtype)
            losses, moved = trained(model, windows, optimizers(model)[at][2], steps)
            if name == "gpt_neox":
                moved["embed_out.weight"] = moved["lm_head.weight"]
            sides.append((losses, flat(moved, names)))
        (true_losses, true), (own_losses, own) = sides
        for ranks in RANKS:
            losses = run(binary, folder, [*ours_of[kind], *ranks], steps)
            written = load_file(folder / "ours" / "model.safetensors")
            assert sorted(written) == names, f"{name}: other names: {set(written) ^ set(names)}"
            ours = flat({of: written[of].double() - begun[of].double() for of in names}, names)
            found, theirs = distance(ours, true), distance(own, true)
            # The metrics have the loss of rank 0's samples, or none where another rank has the scores.
            pairs = zip(losses, true_losses) if ranks is RANKS[0] else []
            worst = max((abs(one - other) / other for one, other in pairs), default=None)
            well = worst is None or worst <= BOUND
            (folder / "ours" / "config.json").write_text((folder / "config.json").read_text())
            again, told = transformers.AutoModelForCausalLM.from_pretrained(
                folder / "ours", output_loading_info=True, attn_implementation="eager"
            )
            lacks = [key for key, value in told.items() if value]
            with torch.no_grad():
                after = abs(loss(again.eval(), windows).item() - true_losses[-1]) / true_losses[-1]
            well = well and found <= max(TIMES_OWN * theirs, BOUND) and after <= BOUND and not lacks
            good = good and well
            words = " ".join(ranks[:-1]).replace("--", "") or "one rank"
            seen = "" if worst is None else f"{worst:.1e}"
            print(
                f"| {name} | {kind} | {words} | {seen} | {found:.1e} | {theirs:.1e} | {after:.1e} |"
                f"{'' if well else f' exceeds its bound {lacks}'}", flush=True,
            )
    return good


def main() -> None:
    binary, *names = sys.argv[1:]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print("| model | optimizer | ranks | losses, ours | change, ours | transformers' | loss of the written file |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            good = compare(binary, name, Path(folder)) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
