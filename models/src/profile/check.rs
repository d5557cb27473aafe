//! Refuses profiles with impossible figures.

use lockstep_topology::InputError;

use super::{
    ComputeEntry, Interval, NoiseTrace, OLDEST_VERSION, PROFILE_VERSION, Point, Profile, RepeatedEntry, StorageEntry,
};

/// A figure's name, the figure, and its slowdown.
type Figure<'a> = (String, &'a Interval, f64);
/// What is wrong with a profile: the value and why.
type Fault = (String, &'static str);

/// The phases of entries.
const PHASES: [&str; 4] = ["forward", "backward-data", "backward-weight", "backward"];

fn positive(figure: f64) -> bool {
    figure > 0.0 && figure.is_finite()
}

impl Profile {
    /// Refuses impossible figures.
    ///
    /// # Errors
    /// Names the entry and the figure.
    pub fn check(&self, file: &str) -> Result<(), InputError> {
        self.fault()
            .map_or(Ok(()), |(value, message)| Err(InputError::new(file, value, format!("{message}: calibrate again"))))
    }

    /// The first fault of the profile.
    fn fault(&self) -> Option<Fault> {
        let figures = match self.fault_of_host().map_or_else(|| self.figures(), Err) {
            Ok(figures) => figures,
            Err(fault) => return Some(fault),
        };
        figures.into_iter().find_map(|(name, interval, slowdown)| {
            let Interval { value, low, high } = *interval;
            if !(low >= 0.0 && low <= value && value <= high && high.is_finite()) {
                return Some((format!("{name}: {interval:?}"), "must be finite, with 0 <= low <= value <= high"));
            }
            (!positive(slowdown)).then(|| (format!("{name}: slowdown = {slowdown}"), "must be positive and finite"))
        })
    }

    /// Faults of the version and of the host's own figures.
    fn fault_of_host(&self) -> Option<Fault> {
        if !(OLDEST_VERSION..=PROFILE_VERSION).contains(&self.version) {
            return Some((format!("version = {}", self.version), "is of another version"));
        }
        let counts = [("cores", self.cores), ("side_by_side", self.side_by_side)];
        if let Some((name, _)) = counts.into_iter().find(|(_, number)| *number == 0) {
            return Some((format!("{name} = 0"), "must be at least 1"));
        }
        let rates = [
            ("flops_per_core_s", self.flops_per_core_s),
            ("memory_bandwidth", self.memory_bandwidth),
            ("pulse_s", self.pulse_s.unwrap_or(1.0)),
        ];
        let wrong = rates.into_iter().find(|(_, figure)| !positive(*figure));
        wrong.map(|(name, figure)| (format!("{name} = {figure}"), "must be positive and finite"))
    }

    /// All measured figures, in the order of the file.
    fn figures(&self) -> Result<Vec<Figure<'_>>, Fault> {
        let mut all = Vec::new();
        for (position, gpu) in self.gpus.iter().enumerate() {
            if let Some((value, message)) = gpu.fault() {
                return Err((format!("{}: {value}", gpu.model), message));
            }
            if self.gpus[..position].iter().any(|other| other.model == gpu.model) {
                return Err((gpu.model.clone(), "is given twice among the GPUs"));
            }
            all.extend(gpu.intervals().into_iter().map(|(name, interval)| (name, interval, 1.0)));
        }
        // Where GPUs were measured, their host's cores need not have been.
        let may_be_empty = !self.gpus.is_empty();
        device_figures(("", may_be_empty), &self.compute, [&self.update, &self.load], &mut all)?;
        for gpu in &self.gpus {
            let device = format!("{}: ", gpu.model);
            device_figures((&device, false), &gpu.compute, [&gpu.update, &gpu.load], &mut all)?;
        }
        self.transport_figures(&mut all)?;
        all.extend(self.decode.iter().map(|entry| ("decode".to_owned(), &entry.seconds, entry.slowdown)));
        for entry in &self.formulas {
            if entry.elements == 0 {
                return Err((entry.formula.clone(), "must have points of at least one element"));
            }
            all.push((entry.formula.clone(), &entry.seconds, entry.slowdown));
        }
        for entry in &self.moves {
            all.extend([&entry.pack, &entry.unpack].map(|seconds| ("moves".to_owned(), seconds, entry.slowdown)));
        }
        if let Some(StorageEntry { sequential, random, cached, .. }) = &self.storage {
            let rates = [("sequential", sequential), ("random", random), ("cached", cached)];
            if let Some((name, rate)) = rates.into_iter().find(|(_, rate)| !positive(rate.value)) {
                return Err((format!("storage: {name} = {}", rate.value), "must be positive and finite"));
            }
            all.extend(rates.map(|(name, rate)| (format!("storage: {name}"), rate, 1.0)));
        }
        match self.noise.as_ref().and_then(NoiseTrace::fault) {
            Some(fault) => Err((format!("noise: {fault}"), "must be positive and finite, as many for each core")),
            None => Ok(all),
        }
    }

    /// Those of messages between threads and between processes.
    fn transport_figures<'a>(&'a self, all: &mut Vec<Figure<'a>>) -> Result<(), Fault> {
        let transports = std::iter::once(("memory", &self.memory)).chain(self.mpi.iter().map(|mpi| ("mpi", mpi)));
        for (name, transport) in transports {
            let figures = [&transport.latency, &transport.overhead, &transport.copy, &transport.sum];
            for interval in figures.into_iter().chain(&transport.wake).chain(&transport.cold) {
                all.push((name.to_owned(), interval, transport.slowdown));
            }
            for RepeatedEntry { bytes, copy, sum } in &transport.repeated {
                if *bytes == 0 {
                    return Err((format!("{name}: repeated: bytes = 0"), "must be at least 1"));
                }
                all.extend([copy, sum].map(|interval| (name.to_owned(), interval, transport.slowdown)));
            }
        }
        Ok(())
    }
}

/// The figures of computing on a device, by its name before each.
fn device_figures<'a>(
    (device, may_be_empty): (&str, bool),
    compute: &'a [ComputeEntry],
    [update, load]: [&'a Vec<Point>; 2],
    all: &mut Vec<Figure<'a>>,
) -> Result<(), Fault> {
    for entry in compute {
        let name = format!("{device}{} {}", entry.phase, entry.chain);
        if !PHASES.contains(&entry.phase.as_str()) {
            return Err((format!("{device}phase = {:?}", entry.phase), "is not a phase"));
        }
        if entry.samples == 0 {
            return Err((format!("{name}: samples = 0"), "must be at least 1"));
        }
        all.push((name, &entry.seconds, entry.slowdown));
    }
    for (name, points) in [("update", update), ("load", load)] {
        let name = format!("{device}{name}");
        if points.is_empty() && !may_be_empty || points.iter().any(|point| point.elements == 0) {
            return Err((name, "must have points of at least one element"));
        }
        all.extend(points.iter().map(|point| (name.clone(), &point.seconds, point.slowdown)));
    }
    Ok(())
}
