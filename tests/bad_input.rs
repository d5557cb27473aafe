//! Tests bad input at the command line: exit code 2, one line with place, value and cure, no panic, no file left.

use std::path::PathBuf;

use crate::commands::{folder, lockstep};

/// Files used by the cases.
const FILES: [(&str, &str); 18] = [
    ("no.txt", "not toml ["),
    ("unknown-layer.toml", "name = \"m\"\ninput = [1, 4, 4]\n[[layer]]\nkind = \"dens\"\nout_features = 2\n"),
    ("unknown-key.toml", "name = \"m\"\ninput = [1, 4, 4]\n[[layer]]\nkind = \"dense\"\nfeatures = 2\n"),
    (
        "cycle.toml",
        "name = \"m\"\ninput = [1, 4, 4]\n[[layer]]\nname = \"a\"\nkind = \"relu\"\ninputs = [\"b\"]\n[[layer]]\nname = \
         \"b\"\nkind = \"relu\"\ninputs = [\"a\"]\n[[layer]]\nkind = \"softmax_cross_entropy\"\ninputs = [\"b\"]\n",
    ),
    (
        "shape.toml",
        "name = \"m\"\ninput = [1, 4, 4]\n[[layer]]\nkind = \"conv2d\"\nout_channels = 2\nkernel = 9\n[[layer]]\nkind = \
         \"softmax_cross_entropy\"\n",
    ),
    (
        "bandwidth.toml",
        "name = \"c\"\n[[host]]\nname = \"h\"\n[host.cpu]\ncores = 1\nflops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \
         \"-3GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n",
    ),
    (
        "apart.toml",
        "name = \"c\"\n[[host]]\nname = \"h\"\ncount = 2\n[host.cpu]\ncores = 1\nflops_per_core = \
         \"1GFLOP/s\"\nmemory_bandwidth = \"3GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \
         \"1GB/s\"\n",
    ),
    (
        "experiment.toml",
        "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\nranks = 4\nalgorithm = \"parameter-server:5\"\n",
    ),
    ("steps.toml", "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\n"),
    ("epochs.toml", "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\nepochs = 1\n"),
    ("key.toml", "name = \"e\"\nmodel = \"mlp\"\n\nrank = 4\n"),
    ("momentum.toml", "name = \"e\"\nmodel = \"mlp\"\n[optimizer]\nmomentum = 2.0\n"),
    ("library.toml", "name = \"e\"\nmodel = \"mlp\"\nranks = 2\nalgorithm = \"library:mpi\"\n"),
    (
        "noise.toml",
        "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\n[noise]\nkernel = { family = \"gamma\", cv = 1e30 }\n",
    ),
    (
        "quantiles.toml",
        "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\n[noise]\nstep = { family = \"lognormal\", p05 = 1e-9, p95 = 1e9 \
         }\n",
    ),
    (
        "factor.toml",
        "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\n[noise]\nrank = { family = \"constant\", mean = 1e-30 }\n",
    ),
    ("precision.toml", "name = \"e\"\nmodel = \"mlp\"\ncluster = \"dgx-a100\"\nprecision = \"fp8\"\nranks = 2\n"),
    ("device.toml", "name = \"e\"\nmodel = \"mlp\"\ncluster = \"dgx1-v100\"\ndevice = \"cuda:tf32\"\nranks = 2\n"),
];

/// Command lines, and the parts of their messages.
const CASES: &[(&str, &[&str])] = &[
    ("", &["command line", "--help"]),
    ("simm", &["simm", "did you mean sim?"]),
    ("predict --model mlp", &["predict", "did you mean sim predict?"]),
    ("sim predict --model mlp --scale nic=2", &["--scale", "it is one of sim sweep"]),
    ("models list --columns wide", &["--columns", "wide", "must be a whole number"]),
    ("sim predict --model mlp --ranks 2 --ranks 4", &["--ranks", "is given twice"]),
    ("sim predict --model mlp --html page.txt", &["--html", "page.txt", "must end in .html"]),
    ("sim sweep --model mlp --plot front.png", &["--plot", "front.png", "must end in .svg"]),
    ("sim collective --algorithm ring,star --ranks 4 --bytes 4", &["--algorithm", "star", "unknown algorithm"]),
    ("lab up ethernet-5", &["CLUSTER", "ethernet-5", "did you mean ethernet-4"]),
    ("lab up ethernet-4", &["--scale", "40.000 Gbit/s", "use 0.25 or less"]),
    ("lab up ethernet-4 --name ../lab", &["--name", "../lab", "lower-case letters"]),
    ("lab up ethernet-4 --scale much", &["--scale", "much"]),
    ("lab up dgx-a100:2 --scale 0.001", &["dgx-a100", "links to other hosts", "one NIC"]),
    ("lab run no-such-lab -- true", &["NAME", "no-such-lab", "no such lab", "lockstep lab list"]),
    ("lab slow lab0 node0 fast", &["<RATE>", "fast"]),
    ("lab down", &["command line", "is missing"]),
    ("sim predict --rank 2", &["--rank", "did you mean --ranks?"]),
    ("sim predict", &["--model", "is missing", "e.g. lenet"]),
    ("sim predict --model lennet", &["--model", "lennet", "lenet"]),
    ("sim predict --model absent.toml", &["absent.toml", "cannot"]),
    ("sim predict --model unknown-layer.toml", &["unknown-layer.toml:4", "dens", "dense"]),
    ("sim predict --model unknown-key.toml", &["unknown-key.toml:5", "features", "out_features"]),
    ("models check cycle.toml", &["cycle.toml:", "cycle"]),
    ("models check shape.toml", &["shape.toml:", "9"]),
    ("models show lennet", &["MODEL", "lenet"]),
    ("models layouts lenet --ranks 0", &["--ranks", "0", "from 1"]),
    ("models layouts lenet --strategy sgd", &["--strategy", "sgd"]),
    ("sim predict --model lenet --cluster dgx1-v100 --threads-per-rank 4", &["--threads-per-rank: 4:", "leave it out"]),
    ("sim predict --model lenet --cluster workstation --threads-per-rank 99", &["--threads-per-rank: 99:", "are 16"]),
    ("sim predict --model lenet --cluster dgx1-v100 --ranks-per-node 9", &["--ranks-per-node: 9:", "use at most that"]),
    ("sim predict --model lenet --cluster workstation --data nope", &["--data: nope:", "write mnist"]),
    (
        "sim predict --model lenet --cluster workstation --anchor ranks=1,images_per_s=3,ranks=2",
        &["--anchor", "ranks is given twice"],
    ),
    ("sim predict --model vgg-16 --cluster dgx1-v100 --ranks 2 --chunk 4", &["--chunk", "use a chunk of at least"]),
    ("sim sweep --model lenet --cluster workstation --jobs 1025", &["--jobs: 1025:", "from 1 to 1024"]),
    ("exec run --model mlp --tuner-log a.json", &["--tuner-log: a.json:", "--learners auto"]),
    ("exec run --model mlp --target-epochs 3", &["--target-epochs: 3:", "target_accuracy"]),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --target-accuracy 0.5",
        &["--target-accuracy: 0.5:", "after each epoch, of 16 steps here", "has 2"],
    ),
    ("exec run --model mlp --nesterov --momentum 0", &["--nesterov: true:", "momentum, which is 0"]),
    ("exec run --model mlp --decay-batch-norm --weight-decay 0.1", &["--decay-batch-norm: true:", "mlp has none"]),
    ("exec run --model mlp --device null --threads-per-rank 2", &["--threads-per-rank: 2:", "leave it out"]),
    ("exec collective --ranks 4294967295", &["--ranks: 4294967295:", "use at most"]),
    ("models layouts lenet --ranks-per-node 3", &["--ranks-per-node", "does not divide 4 ranks"]),
    ("models layouts lenet --strategy hybrid:g=3", &["hybrid:g=3", "divisor of 4"]),
    ("models layouts lenet --plot layouts.png", &["--plot", "layouts.png", "must end in .svg"]),
    ("models layouts lenet --plot no/layouts.svg", &["--plot", "no/layouts.svg", "folder that does not exist"]),
    (
        "sim predict --model lenet --cluster workstation --mesh pipeline=64",
        &["--mesh", "pipeline=64", "need 64 layers", "at most 11"],
    ),
    (
        "sim predict --model lenet --cluster workstation --mesh pipeline=2 --schedule interleaved:2 --accumulate 3",
        &["--accumulate", "3", "use 2 or 4, or 1f1b"],
    ),
    (
        "sim predict --model lenet --cluster workstation --mesh pipeline=2 --cut at=convv2",
        &["--cut", "did you mean conv2"],
    ),
    (
        "sim predict --model lenet --cluster workstation --mesh pipeline=2 --strategy hybrid:b",
        &["--mesh", "has no axis pipeline"],
    ),
    ("models plan lenet", &["--stages is missing"]),
    ("models plan lennet --stages 2", &["MODEL", "lenet"]),
    ("models plan lenet --stages 0", &["--stages", "0", "from 1"]),
    ("models plan lenet --stages 12", &["--stages", "12", "lenet has 11", "at most 11"]),
    ("models plan lenet --stages 2 --cut flops", &["--cut", "flops", "at=conv3,fc1"]),
    ("models plan lenet --stages 2 --cut at=dens1", &["--cut", "at=dens1", "did you mean dense1"]),
    ("models plan lenet --stages 3 --cut at=dense2,dense1", &["--cut", "does not come after", "order of the model"]),
    ("models plan lenet --stages 2 --schedule 1b1f", &["--schedule", "1b1f", "1f1b"]),
    ("models plan lenet --stages 2 --schedule interleaved:1", &["--schedule", "interleaved:1", "from 2"]),
    ("models plan lenet --stages 3 --schedule interleaved:2", &["--micro-batches", "8", "use 6 or 9"]),
    ("models plan lenet --stages 2 --micro-batches 4294967295", &["--micro-batches", "4294967295", "use fewer"]),
    ("models plan lenet --stages 2 --max-in-flight 1", &["stage 0", "micro-batch 1", "allow 2"]),
    ("models check no.txt", &["MODEL", "no.txt"]),
    ("clusters check bandwidth.toml", &["bandwidth.toml:7", "-3GB/s", "must be positive"]),
    ("clusters check apart.toml", &["apart.toml:", "cannot be reached", "[[link]]"]),
    ("clusters show ethernet-5", &["CLUSTER", "ethernet-4"]),
    ("clusters import absent.xml", &["FILE", "absent.xml", "nvidia-smi"]),
    ("clusters import bandwidth.toml", &["bandwidth.toml:1", "NCCL", "nvidia-smi topo -m"]),
    ("clusters import bandwidth.toml --hosts 0", &["--hosts", "0"]),
    ("clusters import bandwidth.toml --output none/such.toml", &["--output", "none/such.toml"]),
    ("sim predict --model mlp --cluster ethernet-5", &["--cluster", "ethernet-4"]),
    ("sim predict --model mlp", &["--cluster", "this-machine", "calibrate"]),
    ("sim predict --model mlp --profile absent.json", &["--profile", "absent.json", "calibrate"]),
    ("sim predict --model mlp --profile no.txt", &["no.txt:1", "calibrate"]),
    ("exec profile --model lennet", &["--model", "lennet", "lenet"]),
    ("exec profile --model mlp --batch-per-rank 16,0", &["--batch-per-rank", "0", "from 1"]),
    ("exec profile --model mlp --learners 0", &["--learners", "0", "from 1"]),
    ("exec profile --model mlp --device cpu", &["--device", "cpu", "lockstep calibrate"]),
    ("exec profile --model mlp --device cuda:fp8", &["--device", "cuda:fp8", "cuda:bf16"]),
    ("exec profile --model mlp -o no/gpu.json", &["--output", "no/gpu.json", "does not exist"]),
    ("exec sweep absent.toml --out rows.csv", &["absent.toml", "cannot be read"]),
    ("exec sweep experiment.toml", &["--out"]),
    ("exec sweep key.toml --out rows.csv", &["key.toml:4", "did you mean ranks?"]),
    ("exec sweep steps.toml --out rows.csv", &["--steps", "each epoch is evaluated"]),
    ("exec sweep epochs.toml --out no/rows.csv", &["--out", "no/rows.csv", "folder that does not exist"]),
    ("exec sweep epochs.toml --out rows.json", &["--out", "rows.json", "must end in .csv"]),
    ("exec sweep epochs.toml --data mnist:5000+1 --out rows.csv", &["--data", "mnist:5000+1", "4000 samples"]),
    ("sim predict --model mlp --cluster ethernet-4 --ranks 0", &["--ranks", "0", "from 1"]),
    ("sim predict --model mlp --cluster ethernet-4 --ranks 2,x", &["--ranks", "x", "from 1"]),
    ("sim predict --model mlp --cluster ethernet-4 --ranks 257", &["--ranks", "257", "places for 256"]),
    (
        "sim predict --model mlp --cluster ethernet-4 --ranks 4 --global-batch 6",
        &["--global-batch", "6", "multiple of 4"],
    ),
    ("sim predict --model mlp --batch-per-rank 1,2 --global-batch 2", &["--batch-per-rank", "give one"]),
    ("sim predict --model mlp --cluster ethernet-4 --algorithm rinng", &["--algorithm", "rinng", "ring"]),
    ("sim predict --model mlp --ranks 4 --algorithm pairwise", &["--algorithm", "pairwise", "allreduce"]),
    ("sim predict --model mlp --ranks 4 --algorithm multi-color:0", &["--algorithm", "multi-color:0", "at least 1"]),
    ("sim predict --model mlp --bucket 25Mb", &["--bucket", "25Mb", "25MiB"]),
    ("sim predict --model mlp --strategy sgd", &["--strategy", "sgd", "ssgd"]),
    ("sim predict --model lenet --ranks 2 --strategy hybrid", &["--strategy", "hybrid", "hybrid:b"]),
    ("sim predict --model lenet --cluster ethernet-4 --ranks 4 --strategy hybrid:g=3", &["hybrid:g=3", "divisor of 4"]),
    ("sim predict --model nin --cluster ethernet-4 --ranks 2 --strategy hybrid:b", &["nin", "no dense layer"]),
    (
        "sim predict --model lenet --cluster ethernet-4 --ranks 11 --strategy hybrid:c",
        &["--ranks", "dense2 has 10 rows"],
    ),
    (
        "exec run --model lenet --data synthetic --ranks 2 --strategy hybrid:c:variable-batch --accumulate 2",
        &["--accumulate", "larger batch per rank"],
    ),
    (
        "sim predict --model lenet --strategy megatron --mesh data=2,tensor=2 --axis-algorithms device=ring",
        &["--axis-algorithms", "has no axis device"],
    ),
    (
        "sim predict --model lenet --strategy megatron --mesh data=2,tensor=2 --axis-algorithms tensor=pairwise",
        &["--axis-algorithms", "tensor=pairwise", "use ring"],
    ),
    ("sim predict --model lenet --ranks 2 --axis-algorithms ring", &["--axis-algorithms", "write data=ring"]),
    ("sim predict --model mlp --anchor 219", &["--anchor", "219", "ranks=1,images_per_s=219"]),
    (
        "sim predict --model mlp --cluster ethernet-4 --anchor ranks=4,images_per_s=1e12",
        &["--anchor", "more than", "computation that costs nothing"],
    ),
    (
        "sim predict --model mlp --cluster ethernet-4 --anchor ranks=4,images_per_s=1e-300",
        &["--anchor", "is less than"],
    ),
    (
        "sim predict --model mlp --cluster ethernet-4 --anchor ranks=4000000000,images_per_s=1",
        &["--anchor", "4000000000"],
    ),
    (
        "sim predict --model resnet-50 --cluster ethernet-4 --batch-per-rank 4294967295",
        &["costs", "longer than the 213 days", "smaller batch"],
    ),
    ("sim predict experiment.toml", &["experiment.toml:5", "parameter-server:5", "at most 4"]),
    ("sim predict --model mlp --cluster ethernet-4 --trials 5", &["--trials", "nothing varies", "[noise]"]),
    ("sim predict --model mlp --cluster ethernet-4 --trials 1000001", &["--trials", "1000001", "from 1 to 1000000"]),
    ("sim predict --model mlp --cluster ethernet-4 --trials 0", &["--trials", "0", "from 1"]),
    ("sim predict key.toml", &["key.toml:4", "rank", "did you mean ranks?"]),
    ("sim predict unknown-key.toml", &["unknown-key.toml:3", "describes a model"]),
    ("sim predict no.txt", &["no.txt:1", "not TOML"]),
    ("sim sweep", &["--model", "is missing", "e.g. lenet"]),
    ("sim sweep --model mlp --rank 2", &["--rank", "did you mean --ranks?"]),
    ("sim sweep --model mlp,lennet --cluster workstation", &["--model", "lennet", "lenet"]),
    ("sim sweep --model mlp --cluster workstation,workstatio", &["--cluster", "workstatio", "workstation"]),
    ("sim sweep --model mlp --cluster workstation --ranks 1..x", &["--ranks", "1..x", "like 1..32"]),
    ("sim sweep --model mlp --cluster workstation --ranks", &["--ranks", "needs a value"]),
    ("sim sweep --model mlp --cluster workstation --scale nic", &["--scale", "nic=0.5,1,2"]),
    ("sim sweep --model mlp --cluster workstation --scale nic=2", &["--scale", "nic", "clusters show"]),
    (
        "sim sweep --model mlp --cluster ethernet-4 --scale nic=2 --scale ethernet=2",
        &["--scale", "nic and ethernet scale the same"],
    ),
    ("sim sweep --model mlp --cluster workstation --out rows.txt", &["--out", "rows.txt", ".csv or .jsonl"]),
    ("sim sweep --model mlp --cluster workstation --out no/rows.csv", &["--out", "no/rows.csv", "does not exist"]),
    (
        "sim sweep --model mlp --cluster workstation --ranks 65..80 --out rows.csv",
        &["no point can be", "65", "places for 64", "fewer ranks"],
    ),
    (
        "sim sweep --model mlp --cluster workstation --ranks 1..16 --bucket whole,1KiB,2KiB,4KiB --max-points 5",
        &["--max-points", "20 points", "about", "leave values out", "--max-points 20"],
    ),
    (
        "sim sweep --model mlp,lenet --cluster ethernet-4 --anchor ranks=1",
        &["--anchor", "is not an argument of this command"],
    ),
    (
        "calibrate --model mlp --batch-per-rank 4294967295",
        &["--batch-per-rank", "4294967295", "this host has", "smaller batches"],
    ),
    ("exec run --model mlp --resume /dev/zero", &["/dev/zero", "not a regular file"]),
    ("models check zero.onnx", &["zero.onnx", "not a regular file"]),
    ("compare absent.toml", &["EXPERIMENT", "absent.toml", "cannot be read"]),
    ("compare", &["command line", "EXPERIMENT"]),
    ("sim predict --model mlp --cluster ethernet-4 --trace no/t.json", &["--trace", "no/t.json", "does not exist"]),
    ("sim collective --ranks 4 --cluster ethernet-4 --bytes 1Mb", &["--bytes", "1Mb", "MiB"]),
    ("sim collective --ranks 4 --cluster ethernet-4 --collective allreduc", &["--collective", "allreduce"]),
    (
        "exec collective --ranks 2 --collective broadcast:7 --algorithm binomial-tree",
        &["broadcast:7", "root from 0 to 1"],
    ),
    ("exec run --model mlp --data absent", &["--data", "absent", "mnist"]),
    ("exec run --model resnet-32 --data mnist", &["1×28×28", "resnet-32", "synthetic"]),
    ("exec run --model mlp --data mnist --batch-per-rank 5000", &["5000", "4000"]),
    ("exec run --model mlp --scaling linear", &["--scaling", "linear", "linear:256"]),
    ("exec run --model mlp --warm-up 5", &["--warm-up", "5", "gradual:5@0.1"]),
    ("exec run --model mlp --decay steps:0.1@60,30", &["--decay", "60,30", "steps:0.1@30,60,80"]),
    ("exec run --model mlp --momentum-form eq9", &["--momentum-form", "eq9", "separate"]),
    ("exec run --model mlp --recipe goyal", &["--recipe", "goyal", "did you mean goyal2017"]),
    ("exec run --model mlp --seeds 0", &["--seeds", "0", "from 1"]),
    ("exec run --model mlp --device cuda", &["--device", "cuda", "--device cpu"]),
    ("exec run --model mlp --momentum 2.0", &["--momentum", "2.0", "from 0 to below 1"]),
    ("exec run --model mlp --momentum 1", &["--momentum", "1", "from 0 to below 1"]),
    ("sim predict momentum.toml", &["momentum.toml:4", "momentum = 2.0", "from 0 to below 1"]),
    ("exec run --model mlp --ranks 2 --algorithm library:mpi", &["--algorithm", "library:mpi", "mpirun -n", "ring"]),
    ("exec run library.toml", &["library.toml:4", "library:mpi", "mpirun -n", "ring"]),
    ("compare library.toml", &["library.toml:4", "library:mpi", "mpirun -n", "ring"]),
    ("exec collective --ranks 2 --bytes 0", &["--bytes", "0", "a buffer has at least one element", "4B"]),
    ("sim collective --ranks 2 --bytes 8MiB..1MiB", &["--bytes", "8MiB..1MiB", "the smaller size first"]),
    ("sim collective --ranks 2 --beside absent.txt --cluster ethernet-4", &["--beside", "absent.txt", "nccl-tests"]),
    (
        "sim collective --ranks 2 --beside bandwidth.toml --cluster ethernet-4",
        &["bandwidth.toml", "no size with a time"],
    ),
    ("sim collective --ranks 2 --beside a.txt --bytes 1MiB --cluster ethernet-4", &["--beside", "--bytes"]),
    ("sim collective --ranks 2 --bytes 3B", &["--bytes", "3B", "a buffer has at least one element"]),
    ("sim sweep --model mlp --cluster workstation --ranks 1..99999999999", &["--ranks", "too large", "4294967295"]),
    ("sim sweep --model mlp --cluster workstation --ranks 8..4", &["--ranks", "8..4", "smaller number first"]),
    ("sim sweep --model mlp --cluster dgx-a100:1..99999999999", &["--cluster", "too large", "4294967295"]),
    (
        "sim sweep --model mlp --cluster ethernet-4 --scale nic=1e308",
        &["--scale", "nic=1e308", "must be a factor", "1000000"],
    ),
    ("sim predict noise.toml", &["noise.toml:5", "cv = 1e30", "at most 100 times the mean"]),
    ("sim predict quantiles.toml", &["quantiles.toml:5", "at most 100 times the mean"]),
    ("sim predict factor.toml", &["factor.toml:5", "1e-30", "a factor from"]),
    ("sim predict latin.toml", &["latin.toml", "not UTF-8", "line 3", "save it as UTF-8"]),
    ("sim predict --model latin.toml", &["latin.toml", "not UTF-8", "line 3", "save it as UTF-8"]),
    ("sim predict --model mlp --cluster latin.toml", &["latin.toml", "not UTF-8", "line 3", "save it as UTF-8"]),
    ("sim predict --model mlp --profile latin.toml", &["latin.toml", "not UTF-8", "line 3", "save it as UTF-8"]),
    ("exec run --model mlp --recipe latin.toml", &["--recipe", "latin.toml", "not UTF-8", "save it as UTF-8"]),
    ("papers latin.toml", &["PAPER", "latin.toml", "not UTF-8", "save it as UTF-8"]),
    ("exec inspect latin.toml", &["latin.toml", "not UTF-8", "save it as UTF-8"]),
    ("sim predict --model mlp --cluster ethernet-4 --target latin.toml", &["--target", "latin.toml", "not UTF-8"]),
    ("sim predict /dev/zero", &["/dev/zero", "longer than the 4MiB"]),
    ("models check deep.toml", &["deep.toml:40003", "more than 20000 layers"]),
    ("sim predict --model mlp --cluster ethernet-4 --device cuda", &["--device", "cuda", "is not in ethernet-4"]),
    ("sim predict --model mlp --cluster dgx1-v100 --device cpu", &["--device", "cpu", "which is cuda"]),
    ("sim predict --model mlp --cluster dgx1-v100 --device null", &["--device", "null", "computes nothing"]),
    (
        "sim predict --model mlp --cluster k20x8-pcie2 --device cuda:bf16",
        &["--device", "cuda:bf16", "k20", "use fp32", "peak_bf16"],
    ),
    ("sim predict device.toml", &["device.toml:4", "cuda:tf32", "use fp32 or fp16", "peak_tf32"]),
    (
        "sim predict precision.toml",
        &["precision.toml:4", "fp8", "a100", "use fp32 or tf32 or bf16 or fp16", "peak_fp8"],
    ),
    ("sim predict --model mlp --precision fp64", &["--precision", "fp64", "fp32, tf32, bf16, fp16 or fp8"]),
    ("sim predict --model mlp --cluster workstation --precision fp16", &["--precision", "fp16", "CPUs alone"]),
    ("sim predict --model mlp --cluster dgx-a100 --gradients half", &["--gradients", "half", "bf16, fp16 or fp8"]),
    ("exec run --model mlp --precision fp16", &["--precision", "fp16", "stores fp32 or bf16"]),
    ("exec run --model mlp --precision bf16 --device cuda --gradients half", &["--gradients", "half", "sim predict"]),
    ("exec run --model mlp --precision tf32 --device cuda:bf16", &["--precision", "tf32", "leave one of the two out"]),
    ("exec run --model mlp --precision fp8 --device cuda", &["--precision", "fp8", "use fp32, tf32 or bf16"]),
    ("sim sweep device.toml --cluster dgx1-v100", &["no point can be", "device.toml:4", "use fp32 or fp16"]),
];

#[test]
fn bad_input_is_refused_with_place_value_and_cure() {
    let folder = folder("bad-input");
    for (name, text) in FILES {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    std::fs::write(folder.join("latin.toml"), b"name = \"e\"\nmodel = \"mlp\"\n# gr\xf6\xdfe\n").expect("a file");
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.onnx")).expect("a link");
    let deep = "name = \"m\"\ninput = [1, 4, 4]\n".to_owned() + &"[[layer]]\nkind = \"relu\"\n".repeat(450_000);
    std::fs::write(folder.join("deep.toml"), deep).expect("a file");
    let list = |folder: &PathBuf| {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = list(&folder);
    let mut faults = Vec::new();
    for (line, words) in CASES {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = lockstep(&folder, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().last().unwrap_or("").to_owned();
        let mut fault = |what: &str| faults.push(format!("lockstep {line}\n    {what}\n    {errors}"));
        if output.status.code() != Some(2) {
            fault(&format!("exit code {:?}", output.status.code()));
        }
        for word in words.iter().filter(|word| !last.contains(**word)) {
            fault(&format!("does not say {word:?}"));
        }
        if errors.contains("panicked") || errors.contains("RUST_BACKTRACE") {
            fault("panics");
        }
        if !output.stdout.is_empty() {
            fault("prints a result");
        }
    }
    assert_eq!(list(&folder), before, "a refused command leaves no file");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_binary_without_mpi_says_how_to_get_it() {
    if lockstep_measure::launch::HAS_MPI {
        eprintln!("skipped: this binary has MPI");
        return;
    }
    let output = lockstep(&folder("no-mpi"), &["exec", "run", "--model", "mlp", "--transport", "mpi"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("--transport: mpi:") && errors.contains("--features mpi"), "{errors}");
}

#[test]
fn a_truncated_data_file_is_refused() {
    let folder = folder("truncated");
    let data = folder.join("data");
    std::fs::create_dir_all(&data).expect("a folder");
    // An IDX header that announces ten images of 28×28, followed by one byte.
    let images = [0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 28, 0, 0, 0, 28, 7];
    let labels = [0, 0, 8, 1, 0, 0, 0, 10, 1];
    for part in ["train", "t10k"] {
        std::fs::write(data.join(format!("{part}-images-idx3-ubyte")), images).expect("a file");
        std::fs::write(data.join(format!("{part}-labels-idx1-ubyte")), labels).expect("a file");
    }
    let output = lockstep(&folder, &["exec", "run", "--model", "mlp", "--data", "data"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("train-images-idx3-ubyte"), "{errors}");
}
