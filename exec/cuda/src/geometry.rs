//! Computes the number of blocks and threads of a launch from sizes alone, so that sums have one reduction order on
//! every device.

use super::argument::{Argument, ToArgument};

/// Threads of every block, as in the kernels' prelude.
pub const BLOCK: u32 = 256;
/// Threads that run as one.
pub const WARP: u32 = 32;
/// Elements that a thread handles at once in elementwise kernels.
const GROUP: u64 = 4;
/// The most blocks, beyond which threads loop over several groups: enough to fill any device several times.
const MOST_BLOCKS: u64 = 4096;
/// Fewest elements of a channel that a block sums: 32 for each thread.
const LEAST_PART: u32 = 8192;
/// The most parts of a channel.
const MOST_PARTS: u32 = 256;
/// Target number of blocks for sums over channels last, where the tensor is large: enough to fill any device.
const COLUMN_BLOCKS: u32 = 1024;
/// The most threads side by side along channels that are last; each handles four of them.
const MOST_LANES: u32 = 8;
/// Bytes of shared memory for transposing a tile: of at most 1,024 floats, in rows with an odd stride.
const TILE_BYTES: u32 = 6144;

/// The grid of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks, along one axis.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Bytes of shared memory per block.
    pub shared_bytes: u32,
    /// Whether any number of blocks does the same work, since threads stride over it.
    pub strided: bool,
}

impl Geometry {
    fn strided(threads: u64) -> Geometry {
        let blocks = threads.div_ceil(u64::from(BLOCK)).clamp(1, MOST_BLOCKS) as u32;
        Geometry { blocks, threads: BLOCK, shared_bytes: 0, strided: true }
    }

    /// One thread for every four neighbouring elements, and one for those before the first aligned address.
    pub fn groups(elements: u64) -> Geometry {
        Geometry::strided(elements.div_ceil(GROUP) + 1)
    }

    /// One thread for each of `items`, up to the most blocks.
    pub fn threads(items: u64) -> Geometry {
        Geometry::strided(items)
    }

    /// One thread for each of `items`, without limit.
    pub fn each(items: u32) -> Geometry {
        Geometry { blocks: items.div_ceil(BLOCK).max(1), threads: BLOCK, shared_bytes: 0, strided: false }
    }

    /// One warp for each of `items`, without limit.
    pub fn warps(items: u32) -> Geometry {
        let blocks = items.div_ceil(BLOCK / WARP).max(1);
        Geometry { blocks, threads: BLOCK, shared_bytes: 0, strided: false }
    }

    /// One block for each part of each tile of channels that are last, with shared memory for eight doubles per thread.
    pub fn columns(channels: u32, parts: BlockParts) -> Geometry {
        let blocks = channels.div_ceil(tile_width(channels)) * parts.parts;
        Geometry { blocks, threads: BLOCK, shared_bytes: 64 * BLOCK, strided: false }
    }

    /// Blocks for the tiles of `elements`, with shared memory for one tile.
    pub fn tiles(elements: u64) -> Geometry {
        Geometry { shared_bytes: TILE_BYTES, ..Geometry::strided(elements.div_ceil(GROUP)) }
    }

    /// One block for each of `items`, with shared memory for a double per warp.
    pub fn blocks(items: u32) -> Geometry {
        Geometry { blocks: items, threads: BLOCK, shared_bytes: 8 * BLOCK / WARP, strided: false }
    }
}

/// How the elements of a channel are cut into parts that blocks sum; in the kernels `struct Parts`.
///
/// ```
/// use lockstep_cuda::BlockParts;
///
/// assert_eq!(BlockParts::of(100), BlockParts::of(100));
/// assert_eq!((BlockParts::of(8192).parts, BlockParts::of(8193).parts), (1, 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockParts {
    /// Elements of a channel.
    pub count: u32,
    /// Their number.
    pub parts: u32,
    /// Elements of each but the last.
    pub length: u32,
}

impl BlockParts {
    /// The parts of `count` elements: of 8,192 elements, or longer so that there are at most 256 parts; all but the
    /// last have the same length, a multiple of four.
    pub fn of(count: u32) -> BlockParts {
        let length = count.div_ceil(MOST_PARTS).max(LEAST_PART).next_multiple_of(GROUP as u32);
        BlockParts { count, parts: count.div_ceil(length).max(1), length }
    }

    /// The parts of `rows` rows of `channels` channels that are last: enough for about 1,024 blocks, at most 256 parts,
    /// and at least 8,192 elements per block.
    pub fn of_rows(rows: u32, channels: u32) -> BlockParts {
        let width = tile_width(channels);
        let wanted = COLUMN_BLOCKS.div_ceil(channels.div_ceil(width)).min(MOST_PARTS);
        let length = rows.div_ceil(wanted).max(LEAST_PART / width);
        BlockParts { count: rows, parts: rows.div_ceil(length).max(1), length }
    }
}

/// Channels of a tile, where channels are last: as in the kernels' `struct Tile`.
fn tile_width(channels: u32) -> u32 {
    GROUP as u32 * channels.div_ceil(GROUP as u32).next_power_of_two().min(MOST_LANES)
}

impl ToArgument for BlockParts {
    const TYPE: &'static str = "Parts";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let value = [self.count, self.parts, self.length].iter().flat_map(|number| number.to_le_bytes()).collect();
        Argument { name, value, tensor: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_by_hand() {
        // 1,020 elements are 255 groups, and one for the beginning: a block. Four more elements need one thread more
        // than a block has.
        assert_eq!((Geometry::groups(1020).blocks, Geometry::groups(1024).blocks), (1, 2));
        assert_eq!((Geometry::threads(256).blocks, Geometry::threads(257).blocks), (1, 2));
        assert_eq!((Geometry::warps(8).blocks, Geometry::warps(9).blocks), (1, 2));
        assert_eq!((Geometry::blocks(7).blocks, Geometry::blocks(7).shared_bytes), (7, 64));
        // 64 channels are two tiles of 32. Of 100,352 rows ⌈100,352 / 256⌉ = 392 are a part, so there are 512 blocks; of 2,048
        // channels there are 64 tiles and 16 parts of 392 rows. A tile of four channels takes 2,048 rows at least.
        for (rows, channels, parts, blocks) in [(100_352, 64, 256, 512), (6_272, 2048, 16, 1024), (2_049, 3, 2, 2)] {
            let all = BlockParts::of_rows(rows, channels);
            assert_eq!((all.parts, Geometry::columns(channels, all).blocks), (parts, blocks), "{rows} × {channels}");
        }
        // Zero work is still a launch, and a launch is not larger than a device needs.
        assert_eq!((Geometry::threads(0).blocks, Geometry::groups(1 << 40).blocks), (1, 4096));
    }

    proptest! {
        #[test]
        fn parts_cover_a_channel_once(count in 1..=u32::MAX) {
            let BlockParts { parts, length, .. } = BlockParts::of(count);
            prop_assert!(parts <= MOST_PARTS && length % 4 == 0 && length >= LEAST_PART);
            // The last part begins inside the channel and ends at its end or beyond.
            prop_assert!(u64::from(parts - 1) * u64::from(length) < u64::from(count));
            prop_assert!(u64::from(parts) * u64::from(length) >= u64::from(count));
        }

        #[test]
        fn parts_cover_all_rows_once(rows in 1..=u32::MAX, channels in 1..=1u32 << 20) {
            let BlockParts { count, parts, length } = BlockParts::of_rows(rows, channels);
            prop_assert!(count == rows && parts <= MOST_PARTS);
            prop_assert!(u64::from(parts - 1) * u64::from(length) < u64::from(rows));
            prop_assert!(u64::from(parts) * u64::from(length) >= u64::from(rows));
            prop_assert!(parts == 1 || u64::from(Geometry::columns(channels, BlockParts::of_rows(rows, channels)).blocks) <= 2048);
        }

        #[test]
        fn each_group_has_a_thread_unless_blocks_are_at_their_limit(elements in 0..1u64 << 40, shift in 0..4u64) {
            let geometry = Geometry::groups(elements);
            let threads = u64::from(geometry.blocks) * u64::from(geometry.threads);
            prop_assert!(threads >= (elements + shift).div_ceil(4) || u64::from(geometry.blocks) == MOST_BLOCKS);
        }
    }
}
