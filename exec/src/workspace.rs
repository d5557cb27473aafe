//! Holds the scratch memory that a kernel needs only while it runs: unfolded images, products, partial sums.
//!
//! Kernels of a rank run one after the other, so all share one workspace, as large as the largest demand. It keeps
//! whatever an earlier kernel left in it: a kernel must not assume zeros.

/// A cache line of sixteen elements, for example one pixel of sixteen images.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Sixteen<T = f32>(pub(crate) [T; 16]);

/// Scratch memory in whole cache lines; grows when more is requested.
#[derive(Debug, Default)]
pub struct Workspace {
    lines: Vec<Sixteen>,
}

impl Workspace {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// Writes `value` everywhere.
    pub(crate) fn fill(&mut self, value: f32) {
        self.lines.fill(Sixteen([value; 16]));
    }

    /// Pieces with these numbers of lines.
    pub(crate) fn lines<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [Sixteen]; N] {
        let needed = sizes.iter().sum();
        if self.lines.len() < needed {
            // The old contents are not needed, so nothing is copied.
            self.lines = Vec::new();
            self.lines.resize(needed, Sixteen::default());
        }
        let mut rest = self.lines.as_mut_slice();
        sizes.map(|size| rest.split_off_mut(..size).expect("as many lines as all pieces have together"))
    }

    /// Pieces with these numbers of elements, each aligned to a line.
    pub(crate) fn parts<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let mut wanted = sizes.iter();
        self.lines(sizes.map(|size| size.div_ceil(16))).map(|lines| {
            let size = wanted.next().copied().unwrap_or(0);
            &mut flat(lines)[..size]
        })
    }
}

/// Bytes of a workspace with pieces of these numbers of elements.
pub(crate) fn bytes(pieces: &[usize]) -> usize {
    pieces.iter().map(|elements| elements.div_ceil(16) * size_of::<Sixteen>()).sum()
}

/// Lines as a slice of their elements.
pub(crate) fn flat(lines: &mut [Sixteen]) -> &mut [f32] {
    // SAFETY: a line is sixteen elements and nothing else.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_behind_each_other_on_lines() {
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
    }
}
