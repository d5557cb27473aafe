//! `Watch`: a process that outlives a `lab run` which is killed, and then kills what the run has left.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use crate::tools::command;

/// Waits until its input ends, which a word comes before where the run has ended by itself; else kills the processes
/// whose environment has the mark, `$0`, until there are none: a killed process may have started another meanwhile.
const WATCH: &str = r#"
trap '' HUP INT TERM
read -r ended && exit
rounds=0
while [ "$rounds" -lt 100 ]; do
    left=$(grep -lzxFe "$0" /proc/[0-9]*/environ 2>/dev/null)
    [ -n "$left" ] || exit
    for file in $left; do
        process=${file#/proc/}
        kill -KILL "${process%/environ}" 2>/dev/null
    done
    rounds=$((rounds + 1))
    sleep 0.05
done
"#;

/// The process that watches this one. Its input is a pipe that no other process has the other end of, so the kernel ends
/// it however this process ends.
pub(crate) struct Watch(Child);

impl Watch {
    /// Watches over the processes that `mark`, `NAME=VALUE` in their environment, marks.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(mark: &str) -> io::Result<Watch> {
        let mut shell = command("sh");
        // A group of its own: what kills the run's group must not kill it.
        shell.args(["-c", WATCH, mark]).process_group(0).current_dir("/").stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Watch)
    }
}

impl Drop for Watch {
    /// Ends it, and leaves what the command has left in the background: the run has ended by itself.
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // If it has been killed, there is nothing to end.
            let _ = input.write_all(b"ended\n");
        }
        let _ = self.0.wait();
    }
}
