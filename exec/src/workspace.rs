//! Holds the scratch memory that a kernel needs only while it runs: unfolded images, products, partial sums.
//!
//! Kernels of a rank run one after the other, so all share one workspace, as large as the largest demand. It keeps
//! whatever an earlier kernel left in it: a kernel must not assume zeros.

/// A cache line of sixteen elements.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct CacheLine([f32; LINE]);

/// Elements of a cache line.
const LINE: usize = 16;

/// Scratch memory in whole cache lines; grows when more is requested.
#[derive(Debug, Default)]
pub struct Workspace {
    lines: Vec<CacheLine>,
}

impl Workspace {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// Writes `value` everywhere.
    pub(crate) fn fill(&mut self, value: f32) {
        self.lines.fill(CacheLine([value; LINE]));
    }

    /// Pieces with these numbers of elements, each aligned to a cache line.
    pub(crate) fn parts<const P: usize>(&mut self, sizes: [usize; P]) -> [&mut [f32]; P] {
        let mut rest = self.at_least(&sizes);
        sizes.map(|size| piece(&mut rest, size))
    }

    /// The same for any number of pieces.
    pub(crate) fn pieces(&mut self, sizes: &[usize]) -> Vec<&mut [f32]> {
        let mut rest = self.at_least(sizes);
        sizes.iter().map(|size| piece(&mut rest, *size)).collect()
    }

    /// Its lines, at least as many as pieces of these sizes take.
    fn at_least(&mut self, sizes: &[usize]) -> &mut [CacheLine] {
        let needed = sizes.iter().map(|size| size.div_ceil(LINE)).sum();
        if self.lines.len() < needed {
            // The old contents are not needed, so nothing is copied.
            self.lines = Vec::new();
            self.lines.resize(needed, CacheLine::default());
        }
        &mut self.lines
    }

    /// Pieces with these numbers of places of N images, each piece aligned to a cache line.
    pub(crate) fn lines<const N: usize, const P: usize>(&mut self, sizes: [usize; P]) -> [&mut [[f32; N]]; P] {
        self.parts(sizes.map(|size| N * size)).map(|part| part.as_chunks_mut().0)
    }
}

/// Cuts a piece of `size` elements off.
fn piece<'a>(rest: &mut &'a mut [CacheLine], size: usize) -> &'a mut [f32] {
    let lines = rest.split_off_mut(..size.div_ceil(LINE)).expect("as many lines as all pieces have together");
    // SAFETY: a cache line is sixteen elements and nothing else, and these have at least `size`.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size) }
}

/// Bytes of a workspace with pieces of these numbers of elements.
pub(crate) fn bytes(pieces: &[usize]) -> usize {
    pieces.iter().map(|elements| elements.div_ceil(LINE) * size_of::<CacheLine>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_consecutive_and_start_on_cache_lines() {
        let mut workspace = Workspace::default();
        let [a, b, c] = workspace.parts([17, 0, 5]);
        assert_eq!((a.len(), b.len(), c.len()), (17, 0, 5));
        assert_eq!(c.as_ptr() as usize - a.as_ptr() as usize, 128);
        assert_eq!(a.as_ptr() as usize % 64, 0);
        c.fill(3.0);
        assert_eq!(workspace.bytes(), 3 * 64);
        // Contents stay until more is requested.
        let [all] = workspace.parts([37]);
        assert_eq!(all[32..], [3.0; 5]);
        workspace.parts([100]);
        assert_eq!(workspace.bytes(), 7 * 64);
        // Pieces of one length lie where they lay.
        workspace.pieces(&[17, 0, 5])[2].fill(2.0);
        assert_eq!(workspace.parts([17, 0, 5])[2], [2.0; 5]);
    }
}
