//! Models input as activities: a host's storage, its decoding threads, and the route from its CPU to a device.

use lockstep_models::Input;
use lockstep_topology::cluster::{Device, DeviceKind, Sharing};
use lockstep_topology::{InputError, Time};

use super::{Part, Resources};
use crate::fluid::{ClassId, Fluid, ResourceId, Use};
use crate::platform::NetworkModel;

/// The transfer of a batch from its host's CPU to a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload {
    /// A unit of work is a second of a copy that has its route to itself.
    pub(crate) class: ClassId,
    /// Its work.
    pub(crate) seconds: f64,
    /// From its start until its bytes flow.
    pub(crate) latency: Time,
}

impl<F: Fluid> Resources<'_, F> {
    /// The CPU that feeds `device`, or the one that represents it, and how many uses it has for each that is simulated.
    fn feeder(&self, device: &Device) -> (&Device, f64) {
        let cluster = self.platform.cluster;
        let first = cluster.hosts()[device.host.0 as usize].devices[0];
        let cores = cluster.cores_of(&cluster.devices()[first.0 as usize]);
        let (id, crowd) = self.orbits.device(cluster, &cluster.devices()[cores.0 as usize]);
        (&cluster.devices()[id.0 as usize], crowd)
    }

    /// The resources of a host: storage in seconds of it, and threads that decode.
    fn host_input(&mut self, device: &Device, threads: u32) -> Result<[ResourceId; 2], InputError> {
        let (cpu, crowd) = self.feeder(device);
        let host = &self.platform.cluster.hosts()[cpu.host.0 as usize];
        let (id, name) = (host.id, host.name.clone());
        if let Some(known) = self.inputs[id.0 as usize] {
            return Ok(known);
        }
        let storage = self.add(format!("{name} storage"), Some(Part::Storage(id)), 1.0 / crowd)?;
        let threads = f64::from(threads.max(1)) / crowd;
        let decoders = self.add(format!("{name} decode threads"), Some(Part::Decoders(id)), threads)?;
        self.inputs[id.0 as usize] = Some([storage, decoders]);
        Ok([storage, decoders])
    }

    /// The class of reads for ranks on `device`, a unit of work being a second of the storage.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn reading(&mut self, device: &Device, input: &Input) -> Result<ClassId, InputError> {
        let [storage, _] = self.host_input(device, input.threads)?;
        self.class(1.0, &[Use::one(storage)])
    }

    /// The class of decoding by threads of the host for a rank on `device`, of batches of `samples` samples, a unit of
    /// work being a second of one of them, of which it is on a core for the share `working`.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn decoding(
        &mut self,
        device: &Device,
        input: &Input,
        samples: u32,
        working: f64,
    ) -> Result<ClassId, InputError> {
        let [_, decoders] = self.host_input(device, input.threads)?;
        let cpu = self.feeder(device).0.id;
        let cpu = &self.platform.cluster.devices()[cpu.0 as usize];
        let mut uses = vec![Use::one(decoders)];
        // The threads are on the cores that ranks of the CPU compute on.
        if let DeviceKind::Cpu(_) = &cpu.kind {
            let of_cpu = self.device(cpu)?;
            let memory = working * input.decode_memory;
            uses.push(Use { resource: of_cpu.cores, per_speed: working });
            uses.push(Use { resource: of_cpu.memory, per_speed: memory });
        }
        // Threads on ranks' cores are activities of their own.
        let cap = if matches!(device.kind, DeviceKind::Cpu(_)) { 1 } else { input.threads_on(samples) };
        self.class(f64::from(cap), &uses)
    }

    /// The copy of `bytes` from the host's CPU to `device`, which shares its links with messages as they do with each
    /// other; no time where the device is that CPU.
    ///
    /// # Errors
    /// A device that the CPU does not reach, a route that does not fold, errors of the solver.
    pub(crate) fn upload(&mut self, device: &Device, bytes: u64) -> Result<Upload, InputError> {
        let cluster = self.platform.cluster;
        let cpu = &cluster.devices()[cluster.hosts()[device.host.0 as usize].devices[0].0 as usize];
        if cpu.id == device.id || bytes == 0 {
            return Ok(Upload { class: self.class(1.0, &[])?, seconds: 0.0, latency: Time::ZERO });
        }
        let route = cluster.route(cpu.id, device.id)?;
        self.orbits.check(cluster, &route.links)?;
        let rate = route.transport.rate.bytes_per_s();
        let (mut uses, mut taps) = (Vec::new(), Vec::new());
        if self.platform.network == NetworkModel::MaxMin {
            for link in route.links.iter().map(|id| cluster.link(*id)).filter(|link| link.sharing == Sharing::Shared) {
                uses.push(Use { resource: self.wire(link)?, per_speed: rate });
            }
            taps = self.taps([cpu, device])?;
            taps.iter_mut().for_each(|tap| tap.per_speed *= rate);
        }
        let class = self.transfer(1.0, &uses, &taps)?;
        Ok(Upload { class, seconds: bytes as f64 / rate, latency: route.latency })
    }
}
