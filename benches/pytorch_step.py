"""Images per second of a model's training step in PyTorch on the CPU, the yardstick of pytorch.sh.

The network is the one that tests/pytorch builds from lockstep's own description of the model; SGD with momentum 0.9. With
`--ranks 2` each rank is a process of DistributedDataParallel over gloo.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "pytorch"))
from network import Network, Server  # noqa: E402


def rate(arguments: argparse.Namespace, layers: list, parameters: list, rank: int) -> float:
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1 + rank)
    layout = torch.channels_last if arguments.layout == "channels-last" else torch.contiguous_format
    network = Network(layers, parameters)
    for parameter in network.held:
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)
    count = sum(parameter.numel() for parameter in network.held)
    if arguments.ranks > 1:
        network = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9)
    forward = torch.compile(network) if arguments.compile else network
    images = torch.randn(arguments.batch, *layers[0]["output"]).contiguous(memory_format=layout)
    labels = torch.arange(arguments.batch) % layers[layers[-1]["inputs"][0]]["output"][0]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(images, labels).backward()
        optimizer.step()

    start = time.perf_counter()
    for _ in range(3):
        step()
    if rank == 0:
        print(f"{count} parameters, warm after {time.perf_counter() - start:.1f} s", file=sys.stderr)
    # All ranks take as many steps as rank 0 has time for.
    start = time.perf_counter()
    step()
    steps = torch.tensor(max(int(arguments.seconds / (time.perf_counter() - start)), 3))
    if arguments.ranks > 1:
        torch.distributed.broadcast(steps, 0)
    times = []
    for _ in range(int(steps)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    # A median, like lockstep's figure.
    return arguments.batch * arguments.ranks / statistics.median(times)


def run(rank: int, arguments: argparse.Namespace, layers: list, parameters: list) -> None:
    if arguments.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    found = rate(arguments, layers, parameters, rank)
    if rank == 0:
        print(f"{found:.2f}")
    if arguments.ranks > 1:
        torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="path of kernel_server")
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--layout", choices=["nchw", "channels-last"], default="nchw")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network first")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    server = Server(arguments.server, arguments.model, arguments.batch)
    layers, parameters = server.layers, server.parameters()
    server.close()
    if arguments.ranks == 1:
        run(0, arguments, layers, parameters)
    else:
        torch.multiprocessing.spawn(run, (arguments, layers, parameters), arguments.ranks)


if __name__ == "__main__":
    main()
