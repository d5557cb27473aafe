#!/bin/bash
# Trains from a packed file on throttled storage and from memory, predicted and measured (Kumar et al., 4.1): adds rows to
# docs/in_memory.csv and draws docs/in_memory.svg.
#
#   benches/in_memory.sh [RATE ...]     storage rates in MB/s: 6 9 12 16 100
#
# Each training runs in control groups of version 1: blkio throttles what it reads from storage, memory leaves a small page cache to the one
# that trains from the file. It needs root. GB is the size of the set (1); PACK names one that is there already. A row is
# `storage_MBps,source,predicted_step_s,measured_step_s,predicted_input_wait_s,measured_input_wait_s`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
rates=("$@")
[ ${#rates[@]} -gt 0 ] || rates=(6 9 12 16 100)
groups=/sys/fs/cgroup
if ! [ -w "$groups/blkio" ] || ! [ -e "$groups/blkio/blkio.throttle.read_bps_device" ] || ! [ -e "$groups/memory/memory.limit_in_bytes" ]; then
    echo "needs root and the controllers blkio and memory of control groups, version 1, in $groups" >&2
    exit 2
fi
lockstep=${LOCKSTEP:-$root/target/release/lockstep}
[ -n "${LOCKSTEP:-}" ] || cargo build --quiet --release --bin lockstep

work=$(mktemp -d)
blkio=$groups/blkio/lockstep-$$ memory=$groups/memory/lockstep-$$
clean() {
    rm -rf "$work"
    rmdir "$blkio" "$memory" 2>/dev/null || true
}
trap clean EXIT
pack=${PACK:-$work/set.pack}
if [ -z "${PACK:-}" ]; then
    "$lockstep" data generate --shape imagenet --samples 400 --classes 10 --seed 1 --out "$work/images" >/dev/null
    python3 benches/repeated_images.py "$work/images" "$work/many" "${GB:-2}"
    "$lockstep" data pack "$work/many" --out "$pack" --shuffle-seed 1 >/dev/null
    rm -rf "$work/images" "$work/many"
fi
mkdir -p "$blkio" "$memory"
device=$(lsblk -no MAJ:MIN "$(df --output=source "$pack" | tail -1)" | head -1 | tr -d ' ')
bytes=$(stat -c %s "$pack")

# compared RATE MEMORY [SETTING]: what a comparison prints, with this storage and memory.
compared() {
    local rate=$1 limit=$2
    shift 2
    echo "$device $((rate * 1000000))" >"$blkio/blkio.throttle.read_bps_device"
    echo "$limit" >"$memory/memory.limit_in_bytes"
    (
        echo "$BASHPID" >"$blkio/cgroup.procs"
        echo "$BASHPID" >"$memory/cgroup.procs"
        cd "$work"
        cat >experiment.toml <<EXPERIMENT
name = "in-memory"
model = "resnet-32"
data = "$pack"
augment = "scale,flip"
batch_per_rank = 16
steps = 80
ranks = 2
$*
EXPERIMENT
        exec "$lockstep" compare experiment.toml --format json
    )
}

# row RATE: adds a row to the table from what the comparison printed.
row() {
    python3 - "$work/answer.json" "$1" docs/in_memory.csv <<'PYTHON'
import json, pathlib, sys

answer, rate, table = sys.argv[1:]
[row] = json.loads(pathlib.Path(answer).read_text())["rows"]
keys = ["predicted_step_time_s", "step_time_s", "predicted_exposed_input_s", "exposed_input_s"]
new = ",".join([rate, *(f"{row[key] or 0:.4f}" for key in keys)])
print(new)
table = pathlib.Path(table)
header = "storage_MBps,predicted_step_s,measured_step_s,predicted_input_wait_s,measured_input_wait_s"
lines = table.read_text().splitlines()[1:] if table.exists() else []
lines = [line for line in lines if not line.startswith(f"{rate},")] + [new]
lines.sort(key=lambda line: float(line.split(",")[0] or "inf"))
table.write_text("\n".join([header, *lines]) + "\n")
PYTHON
}

# Layers, updates and messages are measured here, without limits.
compared 100000 -1 'sampling = "partitioned:groups=1"' >"$work/answer.json"
row ""
for rate in "${rates[@]}"; do
    python3 - "$work/out/this-machine.json" <<'PYTHON'
import json, pathlib, sys

profile = pathlib.Path(sys.argv[1])
known = json.loads(profile.read_text())
known["storage"] = None
profile.write_text(json.dumps(known))
PYTHON
    sync
    echo 3 >/proc/sys/vm/drop_caches
    compared "$rate" 450000000 "" >"$work/answer.json"
    row "$rate"
done
"${PYTHON:-.venv/bin/python}" benches/in_memory.py docs/in_memory.csv docs/in_memory.svg
