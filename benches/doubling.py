"""Doubles the size of each kind of input and prints how the time to read it grows.

    python3 benches/doubling.py target/release/lockstep

A line per kind: the two sizes, the processor seconds of the command for each (the least of three runs), and their
ratio. Work in proportion to the size has a ratio of 2, n log n little more; a ratio near 4 is square.
"""

import os
import resource
import subprocess
import sys
import tempfile

RUNS = 3


def model(layers):
    body = "".join(f'[[layer]]\nname = "r{at}"\nkind = "relu"\n' for at in range(layers))
    end = '[[layer]]\nkind = "dense"\nout_features = 10\n[[layer]]\nkind = "softmax_cross_entropy"\n'
    return 'name = "m"\ninput = [1, 4, 4]\n' + body + end


def prototxt(layers):
    text = 'layer { name: "in" type: "Input" top: "b0" input_param { shape: { dim: 1 dim: 1 dim: 4 dim: 4 } } }\n'
    for at in range(layers):
        text += f'layer {{ name: "r{at}" type: "ReLU" bottom: "b{at}" top: "b{at + 1}" }}\n'
    end = f'inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" std: 0.1 }} }}'
    text += f'layer {{ name: "d" type: "InnerProduct" bottom: "b{layers}" top: "s" {end} }}\n'
    return text + 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "s" bottom: "label" }\n'


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(tag, data):
    if isinstance(data, int):
        return number(tag << 3) + number(data)
    data = data.encode() if isinstance(data, str) else data
    return number(tag << 3 | 2) + number(len(data)) + data


def value_info(name, sizes):
    dims = b"".join(field(1, field(1, size)) for size in sizes)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def onnx(layers):
    def node(kind, inputs, output):
        return field(1, b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind))

    flat = node("Flatten", ["x"], "t0")
    nodes = flat + b"".join(node("Relu", [f"t{at}"], f"t{at + 1}") for at in range(layers))
    nodes += node("MatMul", [f"t{layers}", "w"], "y")
    weights = field(5, field(1, 16) + field(1, 10) + field(2, 1) + field(8, "w") + field(9, bytes(640)))
    ends = field(11, value_info("x", [1, 1, 4, 4])) + field(12, value_info("y", [1, 10]))
    graph = nodes + field(2, "g") + weights + ends
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


def cluster(hosts):
    text = 'name = "c"\ndescription = "c"\nprovenance = "assumed"\n'
    for at in range(hosts):
        text += f'[[host]]\nname = "h{at}"\n[host.cpu]\ncores = 1\nflops_per_core = "1GFLOP/s"\nmemory_bandwidth = "1GB/s"\n'
        text += 'memory = "1GiB"\nmessage_latency = "1us"\nmessage_bandwidth = "1GB/s"\n[[host.nic]]\nname = "e"\n'
        text += '[[host.link]]\nkind = "pcie"\nbetween = ["cpu", "e"]\nlatency = "1us"\nbandwidth = "1GB/s"\n'
        text += f'[[link]]\nkind = "ethernet"\nbetween = ["h{at}.e", "s"]\nlatency = "1us"\nbandwidth = "1Gbit/s"\n'
    return text + '[[switch]]\nname = "s"\n'


def topology(gpus):
    text = '<system version="1">\n<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">\n'
    for at in range(gpus):
        text += f'<pci busid="0000:{at >> 8:02x}:{at & 255:02x}.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">\n'
        text += f'<gpu dev="{at}" sm="80" rank="{at}" gdr="1"></gpu>\n</pci>\n'
    return text + "</cpu>\n</system>\n"


def sweep(points):
    ranks = ", ".join(str(at + 1) for at in range(points))
    return f'name = "s"\nmodel = "mlp"\ncluster = "ethernet-gpu-8"\nranks = [{ranks}]\nbatch_per_rank = [1]\n'


# Kind, its file, what makes it, the smaller size, and the arguments of the command that reads it.
KINDS = [
    ("model TOML", "m.toml", model, 8_000, "models check m.toml"),
    ("prototxt", "m.prototxt", prototxt, 8_000, "models check m.prototxt"),
    ("ONNX", "m.onnx", onnx, 8_000, "models check m.onnx"),
    ("cluster TOML", "c.toml", cluster, 4_000, "clusters check c.toml"),
    ("NCCL's XML", "t.xml", topology, 1_000, "clusters import t.xml --gpu h100-sxm"),
    ("sweep file", "s.toml", sweep, 4_000, "sim sweep s.toml --max-points 1"),
    ("rows of a sweep", "s.csv", None, 500, "sim sweep rows.toml --out s.csv --max-points 100000"),
]


def seconds(binary, folder, arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([binary, "-q", *arguments.split()], cwd=folder, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A sweep of more points than it may have is refused when it has been read.
    if done.returncode != (2 if arguments.endswith("--max-points 1") else 0):
        sys.exit(f"{arguments}: {done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows(binary, folder, points):
    """A sweep of that many points that is done: reading its rows is all that is left."""
    sizes = ", ".join(str(at + 1) for at in range(points))
    text = f'name = "s"\nmodel = "mlp"\ncluster = "ethernet-4"\nranks = [1]\nbatch_per_rank = [{sizes}]\n'
    with open(os.path.join(folder, "rows.toml"), "w") as file:
        file.write(text)
    out = os.path.join(folder, "s.csv")
    if os.path.exists(out):
        os.remove(out)
    seconds(binary, folder, "sim sweep rows.toml --out s.csv --max-points 100000")


def main(binary):
    binary = os.path.abspath(binary)
    print(f"{'kind':16} {'size':>7} {'s':>8} {'twice':>7} {'s':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        ratios = []
        for kind, name, make, size, arguments in KINDS:
            found = []
            for count in (size, 2 * size):
                if make is None:
                    rows(binary, folder, count)
                else:
                    made = make(count)
                    with open(os.path.join(folder, name), "wb") as file:
                        file.write(made if isinstance(made, bytes) else made.encode())
                found.append(min(seconds(binary, folder, arguments) for _ in range(RUNS)))
            ratio = found[1] / max(found[0], 1e-9)
            ratios.append(ratio)
            print(f"{kind:16} {size:7} {found[0]:8.3f} {2 * size:7} {found[1]:8.3f} {ratio:6.2f}")
    print(f"greatest ratio {max(ratios):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
