"""Factors of the validation matrix, and the flags that each value means."""

LOADS = ["64KiB", "1MiB", "25MiB", "100MiB", "lenet", "resnet-32", "mlp"]
ALGORITHMS = [
    "ring", "halving-doubling", "binomial-tree", "tree:4", "multi-color:2", "parameter-server:1", "parameter-server:2",
    "parameter-server:1:dedicated", "direct", "hierarchical:ring", "rings:2", "double-tree:2", "library:mpi",
]
# Ranks of each place; labs are hosts of one rank each.
PLACES = {
    "threads-1": 1, "threads-2": 2, "threads-4": 4, "mpi-2": 2, "mpi-4": 4,
    "lab-2-100Mbit": 2, "lab-3-1Gbit": 3, "lab-4-100Mbit": 4, "lab-4-1Gbit": 4, "lab-6-100Mbit": 6, "lab-7-1Gbit": 7, "lab-8-1Gbit": 8,
    "lab-2+2-1Gbit-2to1": 4, "lab-4-1Gbit-one-slow": 4,
}
# Flags of each strategy; of collectives alone there is none.
STRATEGIES = {
    "none": [],
    "ssgd": [],
    "ssgd, bucket a layer": ["--bucket", "layer"],
    "ssgd, one bucket": ["--bucket", "whole"],
    "ssgd, no padding": ["--pad=false"],
    "ssgd, accumulate 2": ["--accumulate", "2"],
    "hybrid:a": ["--strategy", "hybrid:a"],
    "model-parallel": ["--strategy", "model-parallel"],
    "first-device-table": ["--strategy", "first-device-table"],
    "sma, tau 1": ["--strategy", "sma"],
    "sma, tau 4, m 2": ["--strategy", "sma:tau=4", "--learners", "2"],
    "ea-sgd": ["--strategy", "ea-sgd:tau=4"],
    "mesh data=2,tensor=2": ["--mesh", "data=2,tensor=2"],
    "mesh data=2,pipeline=2": ["--mesh", "data=2,pipeline=2", "--accumulate", "4"],
    "zero-1": ["--strategy", "zero-1"],
    "zero-2": ["--strategy", "zero-2"],
    "zero-3": ["--strategy", "zero-3"],
}
# How samples come: of collectives alone none do.
INPUTS = {
    "none": [],
    "memory": [],
    "partitions, shuffled": ["--sampling", "partitioned:groups=1:shuffle-every=5"],
    "packed file": [],
}
FACTORS = {"load": LOADS, "algorithm": ALGORITHMS, "place": list(PLACES), "strategy": list(STRATEGIES), "input": list(INPUTS)}

# The second drawing: trainings by strategies that the first does not have, with the flags of each.
MORE_STRATEGIES = {
    "hybrid:b": ["--strategy", "hybrid:b"],
    "hybrid:c": ["--strategy", "hybrid:c"],
    "hybrid:g=2": ["--strategy", "hybrid:g=2"],
    "hybrid:b, variable batch": ["--strategy", "hybrid:b:variable-batch"],
    "hybrid:c, variable batch": ["--strategy", "hybrid:c:variable-batch"],
    "model-parallel, data=2,tensor=2": ["--strategy", "model-parallel", "--mesh", "data=2,tensor=2"],
    "megatron": ["--strategy", "megatron"],
    "megatron, data=2,tensor=2": ["--strategy", "megatron", "--mesh", "data=2,tensor=2"],
    "megatron:zero-1, data=2,tensor=2": ["--strategy", "megatron:zero-1", "--mesh", "data=2,tensor=2"],
    "megatron, pipeline=2,tensor=2": ["--strategy", "megatron", "--mesh", "pipeline=2,tensor=2", "--accumulate", "4"],
    "ssgd, pipeline=2, 1f1b": ["--mesh", "pipeline=2", "--accumulate", "4", "--schedule", "1f1b"],
    "zero-1, data=2,pipeline=2": ["--strategy", "zero-1", "--mesh", "data=2,pipeline=2", "--accumulate", "4"],
    "zero-3, data=2,device=2": ["--strategy", "zero-3", "--mesh", "data=2,device=2"],
    "local-sgd, tau 4": ["--strategy", "local-sgd:tau=4"],
    "sma, tau 2, first come": ["--strategy", "sma:tau=2:first-come"],
    "ea-sgd, tau 4, first come": ["--strategy", "ea-sgd:tau=4:first-come"],
    "ea-sgd, tau 4, round robin": ["--strategy", "ea-sgd:tau=4:round-robin"],
    "sma, m 2, reference models": ["--strategy", "sma:reference-models", "--learners", "2"],
}
# Kinds of the second drawing's places.
KINDS = {
    "threads": ["threads-1", "threads-2", "threads-4"],
    "mpi": ["mpi-2", "mpi-4"],
    "lab": ["lab-2-100Mbit", "lab-3-1Gbit", "lab-4-1Gbit"],
}
SECOND = {
    "load": ["lenet", "resnet-32", "mlp"],
    "algorithm": ["ring", "direct", "tree:4", "parameter-server:1"],
    "kind": list(KINDS),
    "place": [place for places in KINDS.values() for place in places],
    "strategy": list(MORE_STRATEGIES),
}
# The third drawing: decoders with AdamW, by strategies that the others do not have too, and with what runs again.
DECODERS = {
    "gpt2-char": 8,
    "gpt2-char:layers=2,hidden=256": 4,
    "llama-2-7b:layers=3,hidden=128,heads=4,key_heads=2,feed_forward=384,vocabulary=1024,positions=128": 4,
}
DECODER_STRATEGIES = {
    "ssgd": [],
    "ssgd, accumulate 2": STRATEGIES["ssgd, accumulate 2"],
    "zero-1": STRATEGIES["zero-1"],
    "zero-2": STRATEGIES["zero-2"],
    "zero-3": STRATEGIES["zero-3"],
    "megatron": MORE_STRATEGIES["megatron"],
    "sequence-parallel": ["--strategy", "sequence-parallel"],
    "megatron:zero-1, data=2,tensor=2": MORE_STRATEGIES["megatron:zero-1, data=2,tensor=2"],
    "megatron, pipeline=2,tensor=2": MORE_STRATEGIES["megatron, pipeline=2,tensor=2"],
    "sequence-parallel, data=2,tensor=2": ["--strategy", "sequence-parallel", "--mesh", "data=2,tensor=2"],
    "ssgd, pipeline=2, gpipe": ["--mesh", "pipeline=2", "--accumulate", "4", "--schedule", "gpipe"],
    "ssgd, pipeline=2, 1f1b": MORE_STRATEGIES["ssgd, pipeline=2, 1f1b"],
    "ssgd, pipeline=2, zb-h1": ["--mesh", "pipeline=2", "--accumulate", "4", "--schedule", "zb-h1"],
    "zero-1, data=2,pipeline=2": MORE_STRATEGIES["zero-1, data=2,pipeline=2"],
}
RECOMPUTE = {"none": [], "full": ["--recompute", "full"], "selective": ["--recompute", "selective:core_attn+layernorm"]}
ADAMW = ["--optimizer", "adamw"]
# Samples of each rank and step in the second drawing: so many that a step takes milliseconds. In the first, 16 everywhere.
BATCH = {"lenet": 16, "resnet-32": 4, "mlp": 1024, **DECODERS}
FIRST_BATCH = 16
THIRD = {
    "load": list(DECODERS),
    "algorithm": ["ring", "direct"],
    "kind": list(KINDS),
    "place": [place for places in KINDS.values() for place in places],
    "strategy": list(DECODER_STRATEGIES),
    "recompute": list(RECOMPUTE),
}
# What tables list.
VALUES = {**FACTORS, "load": [*LOADS, *DECODERS], "strategy": list(dict.fromkeys([*STRATEGIES, *MORE_STRATEGIES, *DECODER_STRATEGIES]))}
FLAGS = {**STRATEGIES, **MORE_STRATEGIES, **DECODER_STRATEGIES}
