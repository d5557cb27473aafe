//! Tests the picture: parts tile a tensor, every rank and every collective is shown, no two texts overlap.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{Axis, AxisLayout, AxisSet, Dimension, Job, Layout, LayoutRow, Mesh, Model};

use super::columns::{Columns, MOST};
use super::contents::{Contents, Part, contents};
use super::layout_picture;
use super::lines::lines;

const PLACEMENTS: [AxisLayout; 8] = [
    AxisLayout::Replicated,
    AxisLayout::Split(Dimension::Sample),
    AxisLayout::Split(Dimension::Feature),
    AxisLayout::Split(Dimension::Vocabulary),
    AxisLayout::Split(Dimension::Element),
    AxisLayout::Partial,
    AxisLayout::Own,
    AxisLayout::First,
];

/// The input of `models layouts`.
struct Drawn {
    heading: String,
    model: Arc<Model>,
    mesh: Mesh,
    table: Vec<LayoutRow>,
}

impl Drawn {
    fn of(model: &str, strategy: &str, learners: u32, nodes: &[u32]) -> Drawn {
        let model = Arc::new(lockstep_readers::load_model(model).unwrap());
        let job = Job { learners, node_sizes: Some(nodes.to_vec()), ..Job::new(model, nodes.iter().sum(), 1) };
        Drawn::of_job(Job { strategy: strategy.parse().unwrap(), ..job })
    }

    fn on(mesh: &str) -> Drawn {
        let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
        let mesh: Mesh = mesh.parse().unwrap();
        let job = Job::new(model, mesh.ranks(), 1);
        Drawn::of_job(Job { strategy: "model-parallel".parse().unwrap(), mesh: Some(mesh), ..job })
    }

    fn of_job(job: Job) -> Drawn {
        let (graph, shard) = job.graph().unwrap();
        let heading = format!("{} on {}", job.strategy, graph.mesh);
        let model = shard.map_or(job.model, |(model, _)| model);
        Drawn { heading, model, mesh: graph.mesh.clone(), table: graph.table() }
    }

    fn svg(&self) -> String {
        layout_picture(&self.heading, &self.model, &self.mesh, &self.table)
    }
}

/// Every strategy on few ranks and on many, and nodes with unequal numbers of devices.
fn strategies() -> Vec<Drawn> {
    let cases: [(&str, &str, u32, &[u32]); 17] = [
        ("lenet", "ssgd", 1, &[1]),
        ("lenet", "ssgd", 1, &[4]),
        ("lenet", "ssgd", 1, &[4_000_000_000]),
        ("lenet", "zero-1", 1, &[4]),
        ("lenet", "zero-2", 1, &[4]),
        ("lenet", "zero-3", 1, &[4]),
        ("alexnet", "hybrid:b", 1, &[4]),
        ("alexnet", "hybrid:c", 1, &[16]),
        ("lenet", "model-parallel", 1, &[2]),
        ("lenet", "model-parallel", 1, &[10]),
        ("lenet", "first-device-table", 1, &[3, 3]),
        ("lenet", "first-device-table", 1, &[2, 1, 3]),
        ("lenet", "first-device-table", 1, &[8; 16]),
        ("lenet", "first-device-table", 1, &[4, 8, 2, 1, 8]),
        ("lenet", "sma", 1, &[4]),
        ("lenet", "sma:reference-models", 2, &[8]),
        ("lenet", "sma:reference-models", 4, &[64]),
    ];
    let on_mesh = ["data=2,tensor=2", "tensor=2,data=4", "data=64,tensor=8"].map(Drawn::on);
    let cases = cases.into_iter().map(|(model, strategy, learners, nodes)| Drawn::of(model, strategy, learners, nodes));
    cases.chain(on_mesh).collect()
}

/// Every mesh of one to three axes in either order with at least two ranks along each and up to `most` in all.
fn meshes(most: u32) -> Vec<Mesh> {
    let mut all = Vec::new();
    for chosen in 1u8..16 {
        let axes: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| chosen & 1 << *axis as u8 != 0).collect();
        let mut sizes: Vec<Vec<u32>> = vec![Vec::new()];
        for _ in &axes {
            let longer =
                |outer: &Vec<u32>| (2..=most).map(|size| [outer.as_slice(), &[size]].concat()).collect::<Vec<_>>();
            sizes = sizes.iter().flat_map(longer).filter(|sizes| sizes.iter().product::<u32>() <= most).collect();
        }
        for sizes in sizes.iter().filter(|_| axes.len() < 4) {
            let mut nested: Vec<(Axis, u32)> = axes.iter().copied().zip(sizes.iter().copied()).collect();
            all.push(Mesh::new(&nested).unwrap());
            nested.reverse();
            all.push(Mesh::new(&nested).unwrap());
        }
    }
    all
}

/// Every layout of the mesh's axes.
fn layouts(mesh: &Mesh) -> Vec<Layout> {
    mesh.axes().iter().fold(vec![Layout::REPLICATED], |all, axis| {
        all.iter().flat_map(|layout| PLACEMENTS.map(|placement| layout.with(axis, placement))).collect()
    })
}

/// How often ranks hold each cube of samples, features and elements of a tensor, by version and summand; ranks that
/// hold the same part count once.
///
/// The cubes are of a grid fine enough for all parts.
fn coverage(cells: &[Option<Contents>]) -> BTreeMap<(Option<usize>, Option<usize>), Vec<u32>> {
    let fine = |part: fn(&Contents) -> Part| {
        cells.iter().flatten().map(part).fold(1, |all, part| all * part.of / gcd(all, part.of))
    };
    let grid = [fine(|cell| cell.samples), fine(|cell| cell.features), fine(|cell| cell.elements)];
    let range = |part: Part, of: u32| (part.at * of / part.of)..((part.at + part.count) * of / part.of);
    let mut seen: Vec<Contents> = Vec::new();
    let mut counts = BTreeMap::new();
    for cell in cells.iter().flatten() {
        if seen.contains(cell) {
            continue;
        }
        seen.push(*cell);
        let counts = counts
            .entry((cell.version, cell.summand))
            .or_insert_with(|| vec![0u32; grid.iter().product::<u32>() as usize]);
        for row in range(cell.samples, grid[0]) {
            for column in range(cell.features, grid[1]) {
                range(cell.elements, grid[2])
                    .for_each(|at| counts[((row * grid[1] + column) * grid[2] + at) as usize] += 1);
            }
        }
    }
    counts
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn parts_tile_each_version_and_each_summand_of_a_tensor() {
    let meshes = meshes(MOST);
    assert!(meshes.len() > 50);
    for mesh in &meshes {
        let columns = Columns::of(mesh);
        assert_eq!(columns.ranks, (0..mesh.ranks()).collect::<Vec<_>>(), "{mesh}");
        for layout in layouts(mesh) {
            for (content, counts) in coverage(&contents(&columns, layout)) {
                assert!(counts.iter().all(|count| *count == 1), "{mesh}, {layout}: {content:?} {counts:?}");
            }
        }
    }
}

#[test]
fn ranks_that_differ_on_replicated_axes_only_have_equal_parts() {
    for mesh in meshes(MOST) {
        let columns = Columns::of(&mesh);
        for layout in layouts(&mesh) {
            let cells = contents(&columns, layout);
            for (one, a) in cells.iter().zip(0..) {
                for (other, b) in cells.iter().zip(0..) {
                    let differ = layout.axes().iter().any(|axis| mesh.coordinate(axis, a) != mesh.coordinate(axis, b));
                    // Cells of ranks that hold nothing are equal everywhere.
                    assert!((one == other) != differ || one.is_none() && other.is_none(), "{mesh}, {layout}: {a}, {b}");
                }
            }
        }
    }
}

/// Of a large mesh the parts that are shown are apart from each other, the first begins the tensor and the
/// last ends it.
#[test]
fn of_many_ranks_the_first_and_the_last_are_shown() {
    let large = [
        Mesh::new(&[(Axis::Data, 9)]),
        Mesh::new(&[(Axis::Learner, u32::MAX)]),
        Mesh::new(&[(Axis::Data, 16), (Axis::Tensor, 4)]),
        Mesh::new(&[(Axis::Data, 2), (Axis::Tensor, 1 << 20)]),
        Mesh::new(&[(Axis::Data, 3), (Axis::Device, 3), (Axis::Learner, 3)]),
        Mesh::new(&[(Axis::Data, 1 << 14), (Axis::Tensor, 2), (Axis::Device, 1 << 16)]),
        Mesh::new(&[(Axis::Data, 2), (Axis::Tensor, 2), (Axis::Device, 2), (Axis::Learner, 2)]),
    ];
    for mesh in large.map(Result::unwrap) {
        let columns = Columns::of(&mesh);
        assert!(columns.ranks.is_sorted() && columns.ranks.len() <= MOST as usize, "{mesh}: {:?}", columns.ranks);
        assert_eq!(columns.ranks[0], 0, "{mesh}");
        for layout in layouts(&mesh) {
            let cells = contents(&columns, layout);
            for counts in coverage(&cells).values() {
                assert!(counts.iter().all(|count| *count <= 1), "{mesh}, {layout}");
            }
        }
        let split = contents(&columns, Layout::new(mesh.axes(), AxisLayout::Split(Dimension::Sample)));
        let (first, last) = (split[0].unwrap().samples, split[split.len() - 1].unwrap().samples);
        assert_eq!(first.at, 0, "{mesh}");
        if mesh.axes().iter().count() < 4 {
            assert_eq!((columns.ranks.last(), last.at + last.count), (Some(&(mesh.ranks() - 1)), last.of), "{mesh}");
        }
    }
    let mesh = Mesh::new(&[(Axis::Data, 16), (Axis::Tensor, 4)]).unwrap();
    assert_eq!(Columns::of(&mesh).ranks, [0, 1, 3, 60, 61, 63]);
    let unequal = Mesh::of_nodes(&[8, 3, 5, 2, 7]).unwrap();
    assert_eq!(Columns::of(&unequal).ranks, [0, 1, 7, 18, 19, 24]);
}

/// A node of three devices takes three of six parts, the others two and one.
#[test]
fn unequal_nodes_by_hand() {
    let mesh = Mesh::of_nodes(&[2, 1, 3]).unwrap();
    let columns = Columns::of(&mesh);
    let by = |axes: &[Axis]| Layout::new(AxisSet::of(axes), AxisLayout::Split(Dimension::Sample));
    let shares = |layout: Layout| {
        let share = |cell: Option<Contents>| {
            cell.map(|cell| (cell.samples.at * 6 / cell.samples.of, cell.samples.count * 6 / cell.samples.of))
        };
        contents(&columns, layout).into_iter().map(share).collect::<Vec<_>>()
    };
    let each: Vec<Option<(u32, u32)>> = (0..6).map(|rank| Some((rank, 1))).collect();
    assert_eq!(shares(by(&[Axis::Data, Axis::Device])), each);
    let on_first = by(&[Axis::Data]).with(Axis::Device, AxisLayout::First);
    assert_eq!(shares(on_first), [Some((0, 2)), None, Some((2, 1)), Some((3, 3)), None, None]);
}

#[test]
fn the_lines_show_every_row_and_every_change_of_the_table() {
    for drawn in strategies() {
        let lines = lines(&drawn.table);
        let mut at = 0;
        for row in &drawn.table {
            let found = lines[at..]
                .iter()
                .position(|line| (line.tensor, line.layout, &line.layers) == (row.tensor, row.layout, &row.layers));
            at += found.expect("the row's line");
            if let Some(change) = &row.change {
                let shown = lines[at].change.expect("the row's change");
                assert_eq!((shown.by, shown.axes, shown.times), (change.by, change.axes, row.changes));
                assert_eq!((lines[at + 1].tensor, lines[at + 1].layout), (row.tensor, change.to));
                at += 1;
            }
        }
        let shown = lines.iter().filter(|line| line.change.is_some()).count();
        assert_eq!(shown, drawn.table.iter().filter(|row| row.change.is_some()).count());
    }
}

/// A text of a picture: its class, where its foot begins, its largest extent, and its content.
struct Text {
    class: String,
    left: f64,
    right: f64,
    foot: f64,
    size: f64,
    says: String,
}

fn texts(svg: &str) -> Vec<Text> {
    let of = |line: &str| {
        let (tag, says) = line.strip_prefix("<text ")?.trim_end_matches("</text>").split_once('>')?;
        let attribute = |name: &str| Some(tag.split_once(&format!("{name}=\""))?.1.split('"').next()?.to_owned());
        let class = attribute("class")?;
        let kind = class.split(' ').next()?;
        let (usual, bold) = match kind {
            "heading" => (14.0, true),
            "name" | "by" => (12.0, true),
            "plain" => (11.0, false),
            "small" => (10.0, false),
            "letter" => (13.0, true),
            other => panic!("{other}"),
        };
        let smaller =
            attribute("style").map(|style| style["font-size:".len()..].split("px").next().unwrap().parse().unwrap());
        let size: f64 = smaller.unwrap_or(usual);
        let width = size * if bold { 0.68 } else { 0.6 } * says.chars().count() as f64;
        let x: f64 = attribute("x")?.parse().unwrap();
        let left = if class.ends_with(" end") { x - width } else { x };
        let left = if class.ends_with(" middle") || kind == "letter" { x - width / 2.0 } else { left };
        let foot = attribute(" y")?.parse().unwrap();
        Some(Text { class, left, right: left + width, foot, size, says: says.to_owned() })
    };
    svg.lines().filter_map(of).collect()
}

#[test]
fn every_rank_has_a_cell_in_every_row_and_every_collective_is_named() {
    for drawn in strategies() {
        let svg = drawn.svg();
        let columns = Columns::of(&drawn.mesh);
        let (picture, legend) = svg.split_once("A cell is the whole tensor").expect("a legend");
        assert_eq!(picture.matches("\"cell").count(), columns.ranks.len() * lines(&drawn.table).len(), "{svg}");
        assert!(legend.contains("class=\"small\"") && legend.contains("\"cell"));
        let texts = texts(&svg);
        let ranks: Vec<&str> = texts
            .iter()
            .filter(|text| text.class == "name middle" && text.says != "…")
            .map(|text| text.says.as_str())
            .collect();
        assert_eq!(ranks, columns.ranks.iter().map(u32::to_string).collect::<Vec<_>>());
        let named = texts.windows(2).filter(|pair| pair[0].class == "by");
        let named: Vec<String> = named.map(|pair| format!("{} {}", pair[0].says, pair[1].says)).collect();
        let changes = drawn.table.iter().filter_map(|row| row.change.as_ref());
        let changes: Vec<String> =
            changes.map(|change| format!("{} along {}", change.by.unwrap_or("slice"), change.axes)).collect();
        assert_eq!(named, changes, "{}", drawn.heading);
        assert_eq!(svg, drawn.svg());
    }
}

#[test]
fn no_text_overlaps_another_or_exceeds_the_picture() {
    for drawn in strategies() {
        let svg = drawn.svg();
        let texts = texts(&svg);
        assert_eq!(texts.len(), svg.matches("<text").count(), "every text is read");
        for (number, one) in texts.iter().enumerate() {
            assert!(one.left >= 0.0 && one.right <= 800.0, "{}: {}", drawn.heading, one.says);
            for other in &texts[number + 1..] {
                let apart = one.right <= other.left + 1.0 || other.right <= one.left + 1.0;
                let below = |upper: &Text, lower: &Text| upper.foot <= lower.foot - lower.size * 0.8;
                assert!(
                    apart || below(one, other) || below(other, one),
                    "{}: {} and {}",
                    drawn.heading,
                    one.says,
                    other.says
                );
            }
        }
    }
}

#[test]
fn drawn_groups_equal_those_of_the_mesh() {
    for mesh in meshes(MOST).into_iter().chain([Mesh::of_nodes(&[2, 1, 3]).unwrap()]) {
        let columns = Columns::of(&mesh);
        for axis in mesh.axes().iter() {
            let axes = AxisSet::of(&[axis]);
            let groups = columns.groups(axes);
            assert_eq!(groups.iter().map(|(members, _)| members.len()).sum::<usize>(), columns.ranks.len(), "{mesh}");
            for (members, more) in groups {
                let ranks: Vec<u32> = members.iter().map(|column| columns.ranks[*column]).collect();
                assert_eq!((ranks, more), (mesh.group_of(axes, members[0] as u32).iter().collect(), false), "{mesh}");
            }
        }
    }
}
