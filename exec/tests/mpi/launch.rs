//! Starts scenarios under `mpirun` and checks how they end.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A broken job must end within this time, which has room for slow starts of processes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Any job must end within this time; far more than it needs, also where other programs keep all cores busy.
const LIMIT: Duration = Duration::from_secs(600);

/// One job and how it must end: well, or with a message and a non-zero code.
pub(crate) struct Scenario {
    name: &'static str,
    hosts: &'static [u32],
    fails: Option<&'static str>,
    settings: Vec<(String, String)>,
    patience: Duration,
}

impl Scenario {
    pub(crate) fn new(name: &'static str, hosts: &'static [u32], fails: Option<&'static str>) -> Scenario {
        Scenario { name, hosts, fails, settings: Vec::new(), patience: PATIENCE }
    }

    /// The same with these environment variables; a failure that they cause may come late in the job.
    pub(crate) fn with(mut self, settings: &[(&str, &str)]) -> Scenario {
        self.patience = LIMIT;
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Runs the job; returns an error if it ends otherwise than expected.
    fn run(&self, open_mpi: bool) -> Result<Duration, String> {
        let hosts: Vec<String> = self.hosts.iter().map(u32::to_string).collect();
        let processes = self.hosts.iter().max().map_or(1, |most| most + 1);
        let mut command = Command::new("mpirun");
        if open_mpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command.args(["-n", &processes.to_string()]);
        command.arg(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["rank", self.name, &hosts.join(",")]);
        // Where other programs compute, each of the library's own yields would last for a time slice of theirs.
        command.env("OMPI_MCA_mpi_yield_when_idle", "0");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        let began = Instant::now();
        let mut job = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (mut stdout, mut stderr) = (job.stdout.take().expect("piped"), job.stderr.take().expect("piped"));
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let status = loop {
            if let Some(status) = job.try_wait().map_err(|error| error.to_string())? {
                break status;
            }
            if began.elapsed() > LIMIT {
                let _ = job.kill();
                return Err(format!("hangs for {LIMIT:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = began.elapsed();
        let output = format!("{}{}", reader.join().unwrap_or_default(), errors.join().unwrap_or_default());
        match self.fails {
            None if status.success() => Ok(took),
            None => Err(format!("{status}\n{output}")),
            Some(_) if status.success() => Err(format!("ended well\n{output}")),
            Some(message) if !output.contains(message) => Err(format!("says nothing of {message:?}:\n{output}")),
            Some(_) if took > self.patience => Err(format!("took {took:?} to end\n{output}")),
            Some(_) => Ok(took),
        }
    }
}

/// Runs all scenarios, each in a job of its own.
pub(crate) fn all(scenarios: &[Scenario]) -> ExitCode {
    let version = Command::new("mpirun").arg("--version").output();
    let Ok(version) = version else {
        println!("SKIPPED: no mpirun on this machine (apt-get install --no-install-recommends openmpi-bin)");
        return ExitCode::SUCCESS;
    };
    let open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
    let mut failed = 0;
    for scenario in scenarios {
        match scenario.run(open_mpi) {
            Ok(took) => println!("{} {:?} ... ok, {:.2} s", scenario.name, scenario.hosts, took.as_secs_f64()),
            Err(fault) => {
                failed += 1;
                println!("{} {:?} ... FAILED: {fault}", scenario.name, scenario.hosts);
            }
        }
    }
    println!("{} of {} scenarios under mpirun ended as they must", scenarios.len() - failed, scenarios.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
