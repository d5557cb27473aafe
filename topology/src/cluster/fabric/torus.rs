//! `Torus`: finds dimension-ordered routes in a torus of any dimensions, in closed form.
//!
//! Router r has coordinate (r / stride_i) mod n_i in dimension i, the first dimension being the fastest. A dimension of
//! two routers has one wire between them, not two; a dimension of one has none.

use super::tree::Crossing;

/// A torus of routers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Torus {
    /// Routers along each dimension.
    pub(in super::super) shape: Vec<u32>,
    /// Slots at each router.
    pub(in super::super) per_router: u32,
}

impl Torus {
    /// Routers.
    pub(in super::super) fn routers(&self) -> u64 {
        self.stride(self.shape.len())
    }

    /// Slots for hosts.
    pub(in super::super) fn slots(&self) -> u64 {
        self.routers().saturating_mul(u64::from(self.per_router))
    }

    fn stride(&self, dimension: usize) -> u64 {
        self.shape[..dimension].iter().fold(1, |product: u64, n| product.saturating_mul(u64::from(*n)))
    }

    fn coordinate(&self, router: u64, dimension: usize) -> u64 {
        router / self.stride(dimension) % u64::from(self.shape[dimension])
    }

    /// `1-0-2`: the coordinates of a router.
    pub(in super::super) fn named(&self, router: u64) -> String {
        let each = (0..self.shape.len()).map(|dimension| self.coordinate(router, dimension).to_string());
        each.collect::<Vec<_>>().join("-")
    }

    /// Wires along a dimension.
    pub(in super::super) fn wires(&self, dimension: usize) -> u64 {
        match self.shape[dimension] {
            1 => 0,
            2 => self.routers() / 2,
            _ => self.routers(),
        }
    }

    /// The number, within its dimension, of the wire from a router to the next one along it.
    fn wire(&self, router: u64, dimension: usize) -> u64 {
        match self.shape[dimension] {
            2 => {
                let stride = self.stride(dimension);
                router / (2 * stride) * stride + router % stride
            }
            _ => router,
        }
    }

    /// The router after this one along a dimension.
    fn next(&self, router: u64, dimension: usize) -> u64 {
        let (stride, n) = (self.stride(dimension), u64::from(self.shape[dimension]));
        let at = self.coordinate(router, dimension);
        router - at * stride + (at + 1) % n * stride
    }

    /// Both ends of every wire along a dimension, in the order of the wires.
    pub(in super::super) fn cables(&self, dimension: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let two = self.shape[dimension] == 2;
        let from = (0..self.routers()).filter(move |router| !two || self.coordinate(*router, dimension) == 0);
        let from = from.take(if self.shape[dimension] == 1 { 0 } else { usize::MAX });
        from.map(move |router| (router, self.next(router, dimension)))
    }

    /// The wires at a router with the routers at their other ends, dimension by dimension, upwards first.
    pub(in super::super) fn neighbours(&self, router: u64) -> impl Iterator<Item = (Crossing, u64)> + '_ {
        let mut base = 0;
        (0..self.shape.len()).flat_map(move |dimension| {
            let (n, x) = (u64::from(self.shape[dimension]), self.coordinate(router, dimension));
            let (first, stride) = (base, self.stride(dimension));
            base += self.wires(dimension);
            let (up, down) = (self.next(router, dimension), router - x * stride + (x + n - 1) % n * stride);
            // Two routers have one wire, which begins at the lower one.
            let ahead = (n > 1).then(|| match (n, x) {
                (2, 1) => ((first + self.wire(up, dimension), true), up),
                _ => ((first + self.wire(router, dimension), false), up),
            });
            let behind = (n > 2).then(|| ((first + self.wire(down, dimension), true), down));
            ahead.into_iter().chain(behind)
        })
    }

    /// The wires between routers from one slot to another: one dimension after the other, the shorter way round,
    /// upwards where both are as long.
    pub(in super::super) fn way(&self, from: u64, to: u64) -> Vec<Crossing> {
        let [mut at, to] = [from, to].map(|slot| slot / u64::from(self.per_router));
        let mut ways = Vec::new();
        let mut base = 0;
        for (dimension, n) in self.shape.iter().map(|n| u64::from(*n)).enumerate() {
            let stride = self.stride(dimension);
            let ahead = (self.coordinate(to, dimension) + n - self.coordinate(at, dimension)) % n;
            let (steps, back) = if 2 * ahead <= n { (ahead, false) } else { (n - ahead, true) };
            for _ in 0..steps {
                let x = self.coordinate(at, dimension);
                let lower = at - x * stride;
                let step_to = lower + if back { (x + n - 1) % n } else { (x + 1) % n } * stride;
                let two_down = n == 2 && x == 1;
                let start = if back || two_down { step_to } else { at };
                ways.push((base + self.wire(start, dimension), back || two_down));
                at = step_to;
            }
            base += self.wires(dimension);
        }
        ways
    }

    /// The least of the summed rates across a cut through the middle of a dimension; `rates` are those of a host's wire
    /// and of a wire along each dimension.
    pub(in super::super) fn bisection(&self, ports: u64, rates: &[f64]) -> f64 {
        let hosts = (ports / 2) as f64 * rates[0];
        let cut = |dimension: usize| {
            let n = self.shape[dimension];
            let planes = if n == 2 { 1.0 } else { 2.0 };
            (n > 1).then(|| planes * (self.routers() / u64::from(n)) as f64 * rates[1 + dimension])
        };
        (0..self.shape.len()).filter_map(cut).fold(hosts, f64::min)
    }

    /// The nearly cubic torus that is large enough for `hosts`.
    pub(in super::super) fn near_cube(hosts: u64, dimensions: u32, per_router: u32) -> Torus {
        let routers = hosts.div_ceil(u64::from(per_router)).max(1);
        let mut side = 1u32;
        while u64::from(side).saturating_pow(dimensions) < routers {
            side += 1;
        }
        let mut torus = Torus { shape: vec![side; dimensions as usize], per_router };
        for dimension in (0..dimensions as usize).rev() {
            while torus.shape[dimension] > 1 {
                torus.shape[dimension] -= 1;
                if torus.routers() < routers {
                    torus.shape[dimension] += 1;
                    break;
                }
            }
        }
        torus
    }

    /// `3 x 3 x 2, 2 a router`.
    pub(in super::super) fn shown(&self) -> String {
        let sides: Vec<String> = self.shape.iter().map(u32::to_string).collect();
        format!("{}, {} a router", sides.join(" x "), self.per_router)
    }
}
