"""Images per second of a model's training step in PyTorch on a GPU, the yardstick of `bench.py`.

`yardstick.py KERNEL_SERVER MODEL BATCH PRECISION` (`tf32` or `bf16`) answers lines `WAY SECONDS` with a line of JSON each: a `rate`, or an
`error`. The network is the one that tests/pytorch builds from lockstep's own description of the model; SGD with momentum 0.9, all in
one kernel. Images lie on the GPU already, which ours must bring there.
"""

import json
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "pytorch"))
from network import Network, Server  # noqa: E402


class Way:
    """A network that is ready to take steps."""

    def __init__(self, way: str, layers: list, parameters: list, batch: int, precision: str):
        layout = torch.contiguous_format if way == "nchw" else torch.channels_last
        network = Network(layers, parameters).to("cuda")
        for parameter in network.held:
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=layout)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9, weight_decay=0.0001, fused=True)
        self.forward = network
        if way.startswith("compiled"):
            self.forward = torch.compile(network, mode="reduce-overhead" if way == "compiled-graphs" else "default")
        self.images = torch.randn(batch, *layers[0]["output"], device="cuda").contiguous(memory_format=layout)
        classes = layers[layers[-1]["inputs"][0]]["output"][0]
        self.labels = torch.arange(batch, device="cuda") % classes
        self.autocast = precision == "bf16"
        for _ in range(10):
            self.step()
        torch.cuda.synchronize()

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            total = self.forward(self.images, self.labels)
        total.backward()
        self.optimizer.step()

    def rate(self, seconds: float) -> float:
        """Images per second: the median of windows of several steps each, between events of the device."""
        per_window = max(1, int(0.05 / max(self.window(5) / 5, 1e-6)))
        times = []
        while sum(times) < seconds or len(times) < 3:
            times.append(self.window(per_window))
        return len(self.labels) * per_window / statistics.median(times)

    def window(self, steps: int) -> float:
        """Seconds of `steps` steps."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            self.step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


def copied() -> float:
    """Bytes per second that a copy inside the GPU's memory reads and writes: the median of twenty of 2 GiB."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return 2 * 4 * len(source) / statistics.median(times[3:])


def main() -> None:
    path, model, batch, precision = sys.argv[1:]
    server = Server(path, model, 1)
    layers, parameters = server.layers, server.parameters()
    server.close()
    # Without these, matrices are multiplied in full fp32; with them, as `--device cuda:tf32` does.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    ways: dict[str, Way] = {}
    for line in sys.stdin:
        way, seconds = line.split()
        try:
            if way == "copy":
                answer = {"rate": copied()}
            else:
                if way not in ways:
                    ways[way] = Way(way, layers, parameters, int(batch), precision)
                answer = {"rate": ways[way].rate(float(seconds))}
        except Exception as error:  # noqa: BLE001  one way that fails leaves the others
            answer = {"error": f"{way}: {type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
