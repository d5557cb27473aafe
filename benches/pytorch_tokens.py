"""Training steps of decoders beside PyTorch's on this machine's CPU: milliseconds, and how many times faster ours are.

    python benches/pytorch_tokens.py target/release/lockstep CASE... [--threads 1] [--rounds 3] [--seconds 4] [--ways eager compiled]
    python benches/pytorch_tokens.py target/release/lockstep gpt2-64 --ranks 2 --strategy ssgd|zero-3|megatron [--ways eager]

All in fp32 with AdamW (PyTorch's is fused) and `scaled_dot_product_attention`. Medians of alternating rounds; the ratio is to
PyTorch's fastest way. Several ranks are threads of one process here, and there processes over gloo: DistributedDataParallel
beside ssgd, FSDP2 beside zero-3, column- and row-parallel layers beside megatron. Threads are per rank.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# What each case trains: lockstep's model, samples of a step on each rank, and sizes.
CASES = {
    "gpt2-char": ("gpt2-char", 12, dict(kind="gpt2", layers=4, hidden=128, heads=4, inner=512, vocabulary=256, positions=64)),
    "llama-15m": (
        "llama-2-7b:hidden=288,layers=6,heads=6,key_heads=6,feed_forward=768,positions=256",
        4,
        dict(kind="llama", layers=6, hidden=288, heads=6, inner=768, vocabulary=32000, positions=256),
    ),
    "gpt2-64": ("gpt2:positions=64", 4, dict(kind="gpt2", layers=12, hidden=768, heads=12, inner=3072, vocabulary=50257, positions=64)),
    "gpt2-512": ("gpt2:positions=512", 4, dict(kind="gpt2", layers=12, hidden=768, heads=12, inner=3072, vocabulary=50257, positions=512)),
}


def network(sizes: dict, heads_here: int):
    """The decoder; `heads_here` are those of a rank, where heads are divided."""
    import torch
    from torch import nn
    from torch.nn import functional

    hidden, inner, gpt2 = sizes["hidden"], sizes["inner"], sizes["kind"] == "gpt2"
    of_head = hidden // sizes["heads"]

    def norm():
        return nn.LayerNorm(hidden) if gpt2 else nn.RMSNorm(hidden, eps=1e-5)

    def linear(inputs: int, outputs: int):
        return nn.Linear(inputs, outputs, bias=gpt2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.q, self.k, self.v, self.out = (linear(hidden, hidden) for _ in range(4))
            self.up, self.down = linear(hidden, inner), linear(inner, hidden)
            if not gpt2:
                self.gate = linear(hidden, inner)

        def forward(self, x, cosines, sines):
            y = self.norm1(x)
            q, k, v = (of(y).unflatten(2, (heads_here, of_head)) for of in (self.q, self.k, self.v))
            if not gpt2:
                q, k = (one * cosines + torch.cat([-one[..., of_head // 2 :], one[..., : of_head // 2]], 3) * sines for one in (q, k))
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
            x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.norm2(x)
            y = functional.gelu(self.up(y), approximate="tanh") if gpt2 else functional.silu(self.gate(y)) * self.up(y)
            return x + self.down(y)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(sizes["vocabulary"], hidden)
            self.positions = nn.Embedding(sizes["positions"], hidden) if gpt2 else None
            self.blocks = nn.ModuleList(Block() for _ in range(sizes["layers"]))
            self.norm = norm()
            self.head = nn.Linear(hidden, sizes["vocabulary"], bias=False)
            if gpt2:
                self.head.weight = self.tokens.weight
            angles = torch.arange(sizes["positions"])[:, None] * 10000.0 ** (-torch.arange(0, of_head, 2) / of_head)
            tables = [torch.cat([of(angles)] * 2, 1)[None, :, None] for of in (torch.cos, torch.sin)]
            self.register_buffer("cosines", tables[0], persistent=False)
            self.register_buffer("sines", tables[1], persistent=False)

        def forward(self, tokens, labels):
            x = self.tokens(tokens)
            if gpt2:
                x = x + self.positions.weight
            for block in self.blocks:
                x = block(x, self.cosines, self.sines)
            return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    return Decoder()


def divided(model, strategy: str, ranks: int):
    """The model as the strategy's counterpart in PyTorch spreads it over ranks."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    if strategy == "ssgd":
        return torch.nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (ranks,))
    if strategy == "zero-3":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up", "gate")} | {name: RowwiseParallel() for name in ("out", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, {name: how for name, how in plan.items() if hasattr(block, name)})
    return model


def theirs(rank: int, case: str, way: str, arguments: argparse.Namespace, port: int, answer: str) -> None:
    """Writes the milliseconds of a step of PyTorch."""
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    _, batch, sizes = CASES[case]
    if arguments.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    splits = arguments.ranks > 1 and arguments.strategy == "megatron"
    model = network(sizes, sizes["heads"] // (arguments.ranks if splits else 1))
    if arguments.ranks > 1:
        model = divided(model, arguments.strategy, arguments.ranks)
    # DTensors beside plain tensors are in groups of their own.
    groups = {}
    for parameter in model.parameters():
        groups.setdefault(type(parameter.data), []).append(parameter)
    optimizer = torch.optim.AdamW([{"params": of} for of in groups.values()], lr=1e-5, fused=True)
    forward = torch.compile(model) if way == "compiled" else model
    tokens = torch.randint(sizes["vocabulary"], (batch, sizes["positions"] + 1))
    if splits:
        torch.distributed.broadcast(tokens, 0)

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        forward(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(2):
        step()
    steps = torch.tensor(max(int(arguments.seconds / step()), 4))
    if arguments.ranks > 1:
        torch.distributed.broadcast(steps, 0)
    times = [step() for _ in range(int(steps))]
    if rank == 0:
        pathlib.Path(answer).write_text(str(1e3 * statistics.median(times)))
    if arguments.ranks > 1:
        torch.distributed.destroy_process_group()


def apart(case: str, way: str, arguments: argparse.Namespace, port: int, folder: str) -> float:
    """The same in processes of its own, so that nothing stays behind."""
    import torch.multiprocessing

    answer = os.path.join(folder, "answer")
    torch.multiprocessing.spawn(theirs, (case, way, arguments, port, answer), arguments.ranks)
    return float(pathlib.Path(answer).read_text())


def ours(case: str, steps: int, arguments: argparse.Namespace, pack: str) -> float:
    """The milliseconds of our step."""
    model, batch, _ = CASES[case]
    # Ranks that divide a model have the samples of one.
    ranks = ["--ranks", str(arguments.ranks)]
    command = [arguments.lockstep, "exec", "run", "--model", model, "--data", pack, "--steps", str(steps), "--batch-per-rank", str(batch)]
    command += ["--threads-per-rank", str(arguments.threads), "--optimizer", "adamw", "--learning-rate", "0.00001"]
    command += [*ranks, "--strategy", arguments.strategy, "--format", "json", *arguments.more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return 1e3 * json.loads(done.stdout)["rows"][0]["step_time_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", help="path of lockstep")
    parser.add_argument("cases", nargs="+", metavar="CASE", choices=CASES, help=", ".join(CASES))
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--strategy", choices=["ssgd", "zero-3", "megatron"], default="ssgd")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ways", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--more", nargs="*", default=[], help="further flags of lockstep exec run")
    arguments = parser.parse_args()
    arguments.lockstep = os.path.abspath(arguments.lockstep)
    with tempfile.TemporaryDirectory() as folder:
        text, pack = os.path.join(folder, "text.txt"), os.path.join(folder, "text.pack")
        # Little of it is held out, since evaluation is not measured.
        pathlib.Path(text).write_text("It was the best of times, it was the worst of times. " * 400)
        subprocess.run([arguments.lockstep, "data", "pack", "--text", text, "--out", pack], check=True, capture_output=True)
        for number, case in enumerate(arguments.cases):
            times = {way: [] for way in [*arguments.ways, "lockstep"]}
            for turn in range(arguments.rounds):
                for at, way in enumerate(arguments.ways):
                    port = 29600 + (100 * number + 10 * turn + at) % 1000
                    times[way].append(apart(case, way, arguments, port, folder))
                steps = max(int(1e3 * arguments.seconds / times[arguments.ways[0]][-1]), 4)
                times["lockstep"].append(ours(case, steps, arguments, pack))
            medians = {way: statistics.median(of) for way, of in times.items()}
            best = min(medians[way] for way in arguments.ways)
            spread = ", ".join(f"{way} {medians[way]:.1f} ({min(of):.1f} to {max(of):.1f})" for way, of in times.items())
            what = f"{case}, {arguments.ranks} rank(s) {arguments.strategy}, {arguments.threads} thread(s)"
            print(f"{what}: ms {spread}: {best / medians['lockstep']:.3f} times PyTorch's fastest", flush=True)


if __name__ == "__main__":
    main()
