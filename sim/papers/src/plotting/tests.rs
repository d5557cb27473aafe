//! Tests plots: which files are refused, the positions of published points, and that the papers' own files draw what
//! they say.

use super::*;
use crate::{PAPERS, Shipped, account};

const PAPER: &str = "name = \"p\"\nsource = \"a test\"\n[experiment]\ncluster = \"ethernet-gpu-8\"\nmodel = \"lenet\"\nbatch_per_rank = 16\n\
    [[row]]\nrow = \"A\"\nsays = \"so\"\ncite = \"there\"\nmark = \"anchor\"\nquantity = \"time\"\nepochs = 2\nsamples = 1610\npublished = 3\nunit = \"s\"\n\
    [[row]]\nrow = \"B\"\nsays = \"so\"\ncite = \"there\"\nquantity = \"efficiency\"\nat = { ranks = 4 }\nover = { ranks = 1 }\npublished = 50\nunit = \"%\"\n";
const X: &str = "x = { key = \"ranks\", label = \"GPUs\", values = [1, 4] }\n";

fn paper() -> Paper {
    Paper::parse("p.toml", PAPER).unwrap()
}

/// The plots of one figure with these further lines.
fn plots(lines: &str) -> Result<Vec<Plot>, InputError> {
    let head = "[[figure]]\nname = \"f\"\ntitle = \"title\"\nlike = \"Fig. 1\"\ncaption = \"c\"\n";
    read::parse(&paper(), "p.figures.toml", &format!("{head}{lines}"))
}

/// 2 · 1,600 images in 3 s are 200 steps of 15 ms on one GPU; half of four times its throughput is twice of it.
#[test]
fn published_points_follow_from_the_text() {
    for (quantity, wanted) in [
        ("quantity = \"step-time\", unit = \"ms\"", [15.0, 30.0]),
        ("quantity = \"throughput\", unit = \"images/s\"", [3200.0 / 3.0, 6400.0 / 3.0]),
        ("quantity = \"time\", epochs = 2, samples = 1610, unit = \"s\"", [3.0, 1.5]),
        ("quantity = \"speedup\", unit = \"x\"", [1.0, 2.0]),
        ("quantity = \"slowdown\", unit = \"x\"", [1.0, 2.0]),
        ("quantity = \"efficiency\", unit = \"%\"", [100.0, 50.0]),
    ] {
        let y = format!("y = {{ {quantity}, label = \"up\" }}\n");
        let compares = ["speedup", "slowdown", "efficiency"].iter().any(|one| quantity.contains(one));
        let over = if compares { "over = { ranks = 1 }, " } else { "" };
        let line = format!("line = [{{ name = \"l\", {over}rows = [\"A\", \"B\"] }}]\n");
        let plots = plots(&format!("{X}{y}{line}")).unwrap();
        let points: Vec<(f64, f64)> =
            plots[0].lines[0].points.iter().map(|point| (point.x, point.y.unwrap())).collect();
        // 1,610 images are 25 batches of 64 and 100 of 16.
        for ((x, y), (wanted_x, wanted_y)) in points.iter().zip([(1.0, wanted[0]), (4.0, wanted[1])]) {
            assert!(*x == wanted_x && (y / wanted_y - 1.0).abs() < 1e-9, "{quantity}: {points:?}");
        }
    }
}

#[test]
fn lines_are_predictions_of_the_papers_machine() {
    let y = "y = { quantity = \"throughput\", unit = \"images/s\", label = \"up < b\", scale = \"log\" }\n";
    let line = "line = [{ name = \"l\", rows = [\"A\", \"B\"], perfect = true }, { name = \"server\", at = { algorithm = \"parameter-server:1\" } }]\n";
    let meeting = "[[figure]]\nname = \"g\"\ntitle = \"title\"\nlike = \"Fig. 2\"\ncaption = \"c\"\n\
        x = { key = \"bytes\", label = \"bytes\", values = [\"1KiB\", \"1MiB\"], scale = \"log\" }\n\
        y = { quantity = \"exchange-rate\", label = \"rate\", unit = \"Gbit/s\" }\nline = [{ name = \"ring\", at = { ranks = 4 } }]\n";
    let mut paper = paper();
    paper.plots = plots(&format!("{X}{y}{line}{meeting}")).unwrap();
    let found = account(&[paper.clone()], |_, _| ()).unwrap().plots;
    let of = |figure: &str, line: &str, source: &str| -> Vec<f64> {
        let same = |row: &&lockstep_report::PlotRow| (&*row.figure, &*row.line, &*row.source) == (figure, line, source);
        found.iter().filter(same).map(|row| row.y).collect()
    };
    let (predicted, published, perfect) =
        (of("f", "l", "predicted"), of("f", "l", "published"), of("f", "l", "perfect"));
    // Computation is scaled to the anchor's 1,610 images an epoch, of which whole steps are 1,600; a server's wire is
    // worse than a ring's.
    assert!((predicted[0] / published[0] - 1.00625).abs() < 1e-3 && perfect == [predicted[0], 4.0 * predicted[0]]);
    assert!(of("f", "server", "predicted")[1] < predicted[1] && published.len() == 2);
    let rates = of("g", "ring", "predicted");
    assert!(rates.len() == 2 && rates[0] < rates[1], "latency bounds small buffers: {rates:?}");
    assert!(
        bounds_line(&paper.plots[1], &found).starts_with("c Predicted bound: waiting: latency"),
        "{}",
        bounds_line(&paper.plots[1], &found)
    );
    let drawn = svg(&paper.plots[0], &found);
    // Two points of each line, and its mark in the legend.
    assert_eq!((drawn.matches("<circle").count(), drawn.matches("class=\"p").count()), (6, 2));
    assert_eq!(lockstep_report::svg::rules::faults(&drawn), [""; 0], "{drawn}");
    assert!(
        drawn.contains("up &lt; b, images per second") && drawn.contains(">B</text>") && drawn.contains("p hollow q0")
    );
}

#[test]
fn invalid_figures_are_refused_with_their_line() {
    let y = "y = { quantity = \"step-time\", unit = \"ms\", label = \"up\" }\n";
    let line = "line = [{ name = \"l\" }]\n";
    for (text, wanted) in [
        (
            format!("{X}{y}line = [{{ name = \"l\", rows = [\"Z\"] }}]\n"),
            "p.figures.toml:8: rows: \"Z\": there is no such row",
        ),
        (
            format!("{X}{y}line = [{{ name = \"l\", at = {{ batch_per_rank = 8 }}, rows = [\"A\"] }}]\n"),
            "is of no configuration",
        ),
        (format!("{X}{}{line}", y.replace("step-time", "speedup")), "lacks over"),
        (
            format!("{X}{}{line}", y.replace("step-time", "hours")),
            "p.figures.toml:7: quantity = \"hours\": unknown quantity",
        ),
        (format!("{X}{}{line}", y.replace("\"ms\"", "\"%\"")), "unit % is none of Time"),
        (format!("{X}{}{line}", y.replace("step-time", "exchange-time")), "lacks the key bytes"),
        (format!("{}{y}{line}", X.replace("\"ranks\"", "\"rank\"")), "did you mean ranks"),
        (format!("{}{y}{line}", X.replace("[1, 4]", "[1, 0.5]")), "ranks must be a whole number"),
        (format!("{X}{y}lines = []\n"), "did you mean line"),
        (
            format!("{X}{y}line = [{{ name = \"l\", over = {{ ranks = 1 }} }}]\n"),
            "no other configuration: leave over out",
        ),
        (format!("{X}{y}line = [{{ name = \"l\", over_moves = true }}]\n"), "leave over_moves out"),
        (format!("{X}{y}line = [{{ name = \"l\", at = {{ ranks = 2 }} }}]\n"), "the axis gives it: leave ranks out"),
        (format!("{X}{}{line}", y.replace("label", "epochs = 1, label")), "leave epochs out"),
        (format!("{X}{}{line}", y.replace("label", "bytes = \"1MiB\", label")), "leave bytes out"),
        (
            format!("{X}{y}line = [{{ name = \"l\", computed = {{ what = \"parameters\", model = \"lenet\" }} }}]\n"),
            "is not a figure for that many",
        ),
    ] {
        let error = plots(&text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}\nlacks\n{wanted}");
    }
}

/// Every paper has figures, all of whose points are on a line.
#[test]
fn the_papers_own_figures_are_read() {
    for Shipped { name, .. } in PAPERS {
        let paper = Paper::with_plots(name).unwrap();
        let points: usize = paper.plots.iter().flat_map(|plot| &plot.lines).map(|line| line.points.len()).sum();
        assert!(paper.plots.len() >= 2 && points >= 3, "{name}");
    }
    assert!(super::plots(&paper(), "of/nowhere.toml").unwrap().is_empty());
}

/// Every plot of every paper keeps the rules of pictures, whatever the values are.
#[test]
fn the_papers_own_figures_are_readable() {
    for Shipped { name, .. } in PAPERS {
        let paper = Paper::with_plots(name).unwrap();
        for plot in &paper.plots {
            let values = |line: usize| -> Vec<(f64, Option<String>)> {
                let each = |at: usize| (plot.y.unit.factor * (1.0 + 0.013 * (at * (line + 2)) as f64), None);
                (0..plot.x.values.len()).map(each).collect()
            };
            let lines = plot.lines.iter().enumerate();
            let rows: Vec<_> = lines.flat_map(|(at, line)| point::of_line(&paper, plot, line, &values(at))).collect();
            let drawn = svg(plot, &rows);
            assert_eq!(lockstep_report::svg::rules::faults(&drawn), [""; 0], "{name} {}", plot.name);
            assert_eq!(misplaced(&drawn), [""; 0], "{name} {}", plot.name);
        }
    }
}

/// The names that do not begin or end nearest to the mark before them, by where they stand.
fn misplaced(picture: &str) -> Vec<String> {
    let number = |text: &str| -> f64 { text.parse().unwrap() };
    let between = |text: &str, begin: &str, end: &str| text.split(begin).nth(1)?.split(end).next().map(str::to_owned);
    let mut marks: Vec<(f64, f64)> = Vec::new();
    let mut names: Vec<(String, usize, [f64; 2], f64)> = Vec::new();
    for line in picture.lines() {
        if let Some(at) = between(line, "<path d=\"M", "l5 5").filter(|_| line.contains("class=\"p")) {
            let (x, y) = at.split_once(' ').unwrap();
            marks.push((number(x), number(y) + 5.0));
        } else if line.contains("class=\"name\"") {
            let at = |begin: &str| number(&between(line, begin, "\"").unwrap());
            let (name, left) = (between(line, "class=\"name\">", "<").unwrap(), at("x=\""));
            let right = left + lockstep_report::svg::width(at("font-size=\""), &name);
            names.push((name, marks.len() - 1, [left, right], at(" y=\"")));
        }
    }
    let far = |[left, right]: [f64; 2], foot: f64, (x, y): (f64, f64)| {
        let [across, down] = [(left - x).max(x - right).max(0.0), (foot - 9.0 - y).max(y - foot - 2.0).max(0.0)];
        across.hypot(down)
    };
    let lost = |(_, own, ends, foot): &(String, usize, [f64; 2], f64)| {
        let ours = far(*ends, *foot, marks[*own]);
        marks.iter().enumerate().any(|(other, mark)| other != *own && far(*ends, *foot, *mark) < ours - 0.5)
    };
    names.iter().filter(|name| lost(name)).map(|(name, ..)| name.clone()).collect()
}
