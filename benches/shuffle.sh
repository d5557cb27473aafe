#!/bin/sh
# Compares shuffles of a packed set of JPEG files that MPI processes hold in memory together with the library's
# alltoallv of as many bytes, and reports a process's memory.
#
#   benches/shuffle.sh [GB [RANKS [TURNS]]]     2 4 5
#
# The two alternate, since other load on the machine varies. The set is 400 generated files, repeated. PACK names an
# existing set.
set -eu
cd "$(dirname "$0")/.."
gb=${1:-2} ranks=${2:-4} turns=${3:-5}
cargo build --quiet --release --workspace --features mpi --bin lockstep --bin shuffle_bench

pack=${PACK:-}
if [ -z "$pack" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    pack=$work/set.pack
    target/release/lockstep data generate --shape imagenet --samples 400 --classes 10 --seed 1 --out "$work/images" >/dev/null
    python3 benches/repeated_images.py "$work/images" "$work/many" "$gb"
    target/release/lockstep data pack "$work/many" --out "$pack" --shuffle-seed 1 >/dev/null
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe -n "$ranks" target/release/shuffle_bench "$pack" "$turns"
