//! Tests IDX files: what is written is read back, and broken files are refused without a panic.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn encoded_arrays_are_decoded_unchanged(
        dims in prop::collection::vec(1u32..6, 1..5), fill in prop::collection::vec(any::<u8>(), 625), packed: bool,
    ) {
        let bytes = fill[..dims.iter().product::<u32>() as usize].to_vec();
        let file = encode(&dims, &bytes);
        let file = if packed { compress(&file).unwrap() } else { file };
        prop_assert_eq!(decode("f", &file, &[1, 2, 3, 4]).unwrap(), Idx { dims, bytes });
    }

    #[test]
    fn mutated_files_never_panic(
        changes in prop::collection::vec((0usize..99, any::<u8>()), 0..4), cut in 0usize..99, packed: bool,
    ) {
        let file = encode(&[3, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let mut file = if packed { compress(&file).unwrap() } else { file };
        for (at, byte) in changes {
            let length = file.len();
            file[at % length] = byte;
        }
        file.truncate(file.len() - cut % file.len());
        let whole = decode("f", &file, &[3, 4]);
        prop_assert!(whole.is_ok() || !whole.unwrap_err().message.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), gzipped: bool) {
        let bytes = if gzipped { [vec![0x1f, 0x8b, 8, 0], bytes].concat() } else { bytes };
        let _ = decode("f", &bytes, &[1, 3, 4]);
    }
}

/// A reader that counts what was taken from it.
struct Counted<'a>(&'a [u8], &'a std::cell::Cell<usize>);

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let taken = self.0.read(into)?;
        self.1.set(self.1.get() + taken);
        Ok(taken)
    }
}

/// A file of a megabyte that is none is refused by its first bytes, and read no further.
#[test]
fn headers_are_checked_before_the_rest_is_read() {
    let noise: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (header, wanted) in [([0, 0, 9, 3], "magic number 0x00000903"), ([0, 0, 8, 2], "0x00000802")] {
        let file = [&header[..], &noise].concat();
        for file in [compress(&file).unwrap(), file] {
            let taken = std::cell::Cell::new(0);
            let refused = decode_from("f", BufReader::new(Counted(&file, &taken)), &[3]).unwrap_err();
            assert!(refused.to_string().contains(wanted), "{refused}");
            assert!(taken.get() <= 1 << 16, "{} bytes of {}", taken.get(), file.len());
        }
    }
}
