//! Lists calls in which flags that other calls refuse have an effect.

/// Calls for flags that the others refuse: the call, the flag, its value.
pub(super) const ACCEPTED: &[(&str, &str, Option<&str>)] = &[
    ("sim predict --model lenet --cluster dgx-a100 --ranks 2 --format json", "--device", Some("cuda:bf16")),
    ("sim predict --model lenet --cluster dgx-a100 --ranks 2 --format json", "--precision", Some("bf16")),
    (
        "sim predict --model lenet --cluster dgx-a100 --ranks 2 --precision bf16 --format json",
        "--gradients",
        Some("half"),
    ),
    (
        "sim predict --model lenet --cluster ethernet-4 --ranks 2 --explain --format json",
        "--data",
        Some("synthetic:100"),
    ),
    (
        "sim predict --model lenet --cluster ethernet-gpu-8 --ranks 2 --strategy sma --learners auto --format json",
        "--tuner-threshold",
        Some("0.9"),
    ),
    ("sim sweep --model lenet --cluster dgx-a100 --ranks 2 --format json --out rows.csv", "--precision", Some("bf16")),
    (
        "sim sweep --model lenet --cluster dgx-a100 --ranks 2 --precision bf16 --format json --out rows.csv",
        "--gradients",
        Some("half"),
    ),
    (
        "sim sweep --model lenet --cluster ethernet-4 --ranks 2 --strategy sma --format json --out rows.csv",
        "--learners",
        Some("2"),
    ),
    (
        "sim collective --ranks 64 --bytes 1MiB --cluster ethernet-4 --algorithm direct --format json",
        "--network",
        Some("alpha-beta"),
    ),
    ("exec run --model mlp --data synthetic:64 --batch-per-rank 4 --epochs 1 --format json", "--epochs", Some("2")),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --epochs 3 --format json",
        "--target-accuracy",
        Some("0.01"),
    ),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --epochs 3 --target-accuracy 0.01 --format json",
        "--target-epochs",
        Some("2"),
    ),
    ("exec run --model mlp --data synthetic:64 --ranks 2 --steps 2 --format json", "--global-batch", Some("8")),
    ("exec run --model resnet-32 --batch-per-rank 2 --steps 1 --format json", "--recompute", Some("full")),
    (
        "exec run --model gpt2-char:layers=1,hidden=16,heads=2,positions=8 --batch-per-rank 2 --steps 2 --format json",
        "--save-weights",
        Some("w.safetensors"),
    ),
    (
        "exec run --model mlp --data synthetic:64 --ranks 2 --batch-per-rank 4 --steps 2 --precision bf16 --format json",
        "--gradients",
        Some("half"),
    ),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --strategy sma --steps 2 --format json",
        "--learners",
        Some("2"),
    ),
    (
        "exec run --model @/small.toml --data synthetic:64 --batch-per-rank 4 --epochs 1 --format json",
        "--recompute-bn",
        None,
    ),
    (
        "exec run --model mlp --data synthetic:64 --ranks 2 --batch-per-rank 4 --epochs 1 --strategy sma:first-come --format json",
        "--driver-log",
        Some("d.jsonl"),
    ),
    (
        "exec collective --ranks 2 --bytes 1KiB --algorithm binomial-tree --format json",
        "--collective",
        Some("broadcast"),
    ),
    (
        "sim predict --model gpt2-char --cluster workstation --ranks 1 --batch-per-rank 4 --format json",
        "--seq-length",
        Some("32"),
    ),
    (
        "exec run --model gpt2-char:layers=1,hidden=16,heads=2 --data synthetic:64 --batch-per-rank 4 --steps 2 --format json",
        "--seq-length",
        Some("8"),
    ),
    ("models layouts lenet --strategy megatron --mesh data=4,tensor=1", "--mesh", Some("data=2,tensor=2")),
    ("sim predict --model lenet --cluster ethernet-4 --format json", "--dp", Some("2")),
    ("exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --format json", "--dp", Some("2")),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --scaling linear:2 --format json",
        "--warm-up",
        Some("gradual:1"),
    ),
    (
        "exec run --model @/small.toml --data synthetic:64 --batch-per-rank 4 --steps 2 --weight-decay 0.1 --format json",
        "--decay-batch-norm",
        None,
    ),
    (
        "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --weight-decay 0.1 --format json",
        "--no-decay",
        Some("*.weight"),
    ),
    ("memory --model llama-3-8b:layers=2 --gpus 8xh100-80 --cp 8 --format json", "--cp-exchange", Some("alltoall")),
    (
        "memory --model llama-3-8b:layers=2 --gpus 8xh100-80 --stack megatron --precision fp8 --format json",
        "--no-transpose-cache",
        None,
    ),
    (
        "memory --model llama-3-8b:layers=2 --gpus 8xh100-80 --pp 2 --accumulate 8 --format json",
        "--defer-head-gradients",
        Some("4"),
    ),
    (
        "memory --model llama-3-8b --gpus 8xh100-80 --strategy zero-2 --format json",
        "--reduce-bucket-size",
        Some("auto"),
    ),
    (
        "memory --model llama-3-8b --gpus 8xh100-80 --strategy zero-3 --format json",
        "--stage3-prefetch-bucket-size",
        Some("2e9"),
    ),
    (
        "memory --model llama-3-8b --gpus 8xh100-80 --strategy zero-3 --format json",
        "--stage3-max-live-parameters",
        Some("1e8"),
    ),
    ("models show lenet --memory", "--batch", Some("4")),
    ("models show lenet --memory", "--optimizer", Some("adamw")),
    ("models show resnet-32 --memory", "--recompute", Some("full")),
    ("models show lenet --memory", "--plot", Some("memory.svg")),
    ("models layouts lenet --strategy zero-2 --ranks 4", "--accumulate", Some("2")),
];
