//! Formats an explanation as text: short aligned lines, each with its unit.

use lockstep_topology::Bytes;

use super::reaction::stronger;

use lockstep_report::explanation::{
    ClassFigures, ComputationFigures, ErrorBar, ExchangeFigures, Explanation, HidingFigures, MemoryFigures,
    PeriodicFigures, SensitivityFigures, ShortcutFigures,
};
use lockstep_report::{CollectiveRow, PredictedRow, aligned};

/// Exchanges that are listed, the most expensive.
const EXCHANGES: usize = 6;
/// Tasks that are listed.
const TASKS: usize = 5;
/// Characters of a source that are shown.
const SOURCE: usize = 48;

/// The explanation of a row that has one, below its name.
pub fn text(row: &PredictedRow) -> String {
    let Some(answer) = &row.explanation else { return String::new() };
    let method = if row.setting.algorithm == "-" { String::new() } else { format!(", {}", row.setting.algorithm) };
    let ranks = if row.setting.ranks == 1 { "rank" } else { "ranks" };
    let scenario = row.scenario.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let mut text = format!(
        "\n{}, {} {ranks} x {}{method}{scenario}: {} per step\n",
        row.setting.model,
        row.setting.ranks,
        row.setting.batch_per_rank,
        time(row.step_time_s)
    );
    let mut part = |name: &str, lines: String| text.push_str(&titled(name, &lines));
    part("bound", bound(answer));
    part("in use", in_use(&answer.classes));
    part("critical path", path(answer));
    part("longest on it", tasks(answer));
    part("computation", computation(&answer.computation));
    part("exchanges", exchanges(&answer.exchanges));
    part("between steps", between_steps(&answer.between_steps));
    part("memory", memory(&answer.memory));
    part("bandwidth", hiding(&answer.hiding));
    let hidden = answer.hiding.factor.is_some_and(|factor| factor < 1.0);
    let found = sensitivity(&answer.sensitivities, &answer.does_not_react_to, answer.sensitivity_sum, hidden);
    part("sensitivity", format!("{found}({})\n", answer.sensitivity_basis));
    part("error bar", error_bar(&answer.error_bar));
    part("shortcuts", shortcuts(&answer.shortcuts));
    text
}

fn bound(answer: &Explanation) -> String {
    let waiting = |share: f64, what: &str| {
        if share >= 0.005 { format!(", {} waiting for {what}", percent(share)) } else { String::new() }
    };
    let line = format!(
        "{}, {} of the step{}{}",
        answer.bound,
        percent(answer.bound_utilisation),
        waiting(answer.waiting_for_latency, "messages"),
        waiting(answer.waiting_for_imbalance, "late members")
    );
    [Some(line), stronger(answer)].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The explanation of a collective that has one, below its name.
pub fn collective_text(row: &CollectiveRow) -> String {
    let (Some(classes), Some(reacts)) = (&row.in_use, &row.reacts_to) else { return String::new() };
    let still = row.does_not_react_to.as_deref().unwrap_or_default();
    let sum = row.sensitivity_sum.unwrap_or(-1.0);
    let name = format!("\n{} by {}, {} ranks, {}", row.collective, row.algorithm, row.ranks, Bytes(row.bytes));
    format!(
        "{name}: {}\n{}{}",
        time(row.time_us * 1e-6),
        titled("in use", &in_use(classes)),
        titled("sensitivity", &sensitivity(reacts, still, sum, false))
    )
}

/// Lines below their title.
fn titled(name: &str, lines: &str) -> String {
    let line = |(index, line): (usize, &str)| {
        let name = if index == 0 { name } else { "" };
        format!("  {name:<15} {line}").trim_end().to_owned() + "\n"
    };
    lines.lines().enumerate().map(line).collect()
}

fn in_use(classes: &[ClassFigures]) -> String {
    let row = |class: &ClassFigures| {
        vec![
            class.class.clone(),
            whole(class.utilisation),
            whole(class.mean_utilisation),
            class.resources.to_string(),
            class.busiest.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = classes.iter().map(row).collect();
    aligned(&["class", "busiest %", "mean %", "in use", "the busiest one"], &rows)
}

fn path(answer: &Explanation) -> String {
    let rows: Vec<Vec<String>> =
        answer.critical_path.iter().map(|kind| vec![kind.kind.clone(), ms(kind.seconds), whole(kind.share)]).collect();
    aligned(&["kind", "ms", "% of step"], &rows)
}

fn tasks(answer: &Explanation) -> String {
    let longest = answer.critical_tasks.iter().take(TASKS);
    aligned(&["ms", "task"], &longest.map(|task| vec![ms(task.seconds), task.task.clone()]).collect::<Vec<_>>())
}

fn computation(computation: &ComputationFigures) -> String {
    /// Smaller differences are not shown.
    const SHOWN: f64 = 0.005;
    let ComputationFigures { seconds, alone_s } = *computation;
    let slower = seconds / alone_s.max(f64::MIN_POSITIVE) - 1.0;
    if slower < SHOWN {
        return format!("{} ms, not slowed by communication", ms(seconds));
    }
    format!(
        "{} ms, {:.1} % more than without communication ({} ms):\nthe two share cores or multiprocessors, and memory bandwidth",
        ms(seconds),
        100.0 * slower,
        ms(alone_s)
    )
}

fn between_steps(all: &[PeriodicFigures]) -> String {
    let row = |work: &PeriodicFigures| {
        let longest: Vec<String> =
            work.tasks.iter().take(2).map(|task| format!("{} {} ms", task.task, ms(task.seconds))).collect();
        let every = work.every_steps.map_or(String::new(), |steps| format!("every {steps} steps"));
        vec![ms(work.seconds), work.work.clone(), every, longest.join(", ")]
    };
    aligned(&["ms", "work", "when", "longest tasks"], &all.iter().map(row).collect::<Vec<_>>())
}

fn exchanges(all: &[ExchangeFigures]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let mut order: Vec<&ExchangeFigures> = all.iter().collect();
    order.sort_by(|a, b| b.exposed_s.total_cmp(&a.exposed_s));
    let row = |e: &&ExchangeFigures| {
        let choice = e.nccl.as_ref().map_or_else(String::new, |choice| format!(" ({choice})"));
        vec![ms(e.seconds), ms(e.hidden_s), ms(e.exposed_s), format!("{}{choice}", e.exchange)]
    };
    let rows: Vec<Vec<String>> = order.iter().take(EXCHANGES).map(row).collect();
    let mut text = aligned(&["ms", "hidden", "exposed", "exchange"], &rows);
    if all.len() > EXCHANGES {
        let rest: f64 = order[EXCHANGES..].iter().map(|exchange| exchange.exposed_s).sum();
        text.push_str(&format!("and {} more, {} ms exposed together\n", all.len() - EXCHANGES, ms(rest)));
    }
    text
}

fn memory(memory: &MemoryFigures) -> String {
    let size = |bytes: u64| Bytes(bytes).to_string();
    let verdict = match (memory.fits, memory.capacity_bytes) {
        (Some(false), Some(capacity)) => format!("OUT OF MEMORY: {} of {}", size(memory.total_bytes), size(capacity)),
        (_, Some(capacity)) => format!("{} of {}", size(memory.total_bytes), size(capacity)),
        (_, None) => format!("{} (capacity unknown)", size(memory.total_bytes)),
    };
    let ranks = if memory.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks", memory.ranks) };
    let parts = [
        ("weights", memory.weights_bytes),
        ("gradients", memory.gradients_bytes),
        ("optimizer", memory.optimizer_bytes),
        ("activations", memory.activations_bytes),
        ("input", memory.input_bytes),
        ("exchanges", memory.communication_bytes),
    ];
    // The buffers that the program declares: few programs have any.
    let declared = memory.total_bytes - parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let parts = parts.into_iter().chain((declared > 0).then_some(("buffers", declared)));
    let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {}", size(bytes))).collect();
    let fits = match memory.largest_batch_per_rank {
        None => String::new(),
        Some(0) => "not even one sample per rank fits\n".to_owned(),
        Some(batch) => format!("up to {batch} samples per rank fit\n"),
    };
    let parts: Vec<String> = parts.chunks(3).map(|parts| parts.join(", ")).collect();
    format!(
        "{verdict} on {} ({ranks})\n{}\nwithout reuse of buffers: {}\n{fits}",
        memory.device,
        parts.join(",\n"),
        size(memory.total_unplanned_bytes)
    )
}

fn hiding(hiding: &HidingFigures) -> String {
    let links = || {
        let each = hiding
            .links
            .iter()
            .filter_map(|link| Some(format!("{} {} GB/s", link.kind, figure(link.hiding_bandwidth?))));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut text = match hiding.factor {
        _ if hiding.links.is_empty() => "no links: ranks exchange through memory, or not at all\n".to_owned(),
        Some(factor) if factor <= 0.001 => {
            "less than 1 % of the step is exposed, even at a thousandth of the bandwidth\n".to_owned()
        }
        Some(factor) if factor < 1.0 => {
            format!("less than 1 % of the step is exposed down to {} of the bandwidth: {}\n", percent(factor), links())
        }
        Some(factor) => {
            format!(
                "less than 1 % of the step would be exposed at {} times the bandwidth: {}\n",
                figure(factor),
                links()
            )
        }
        None => format!(
            "at any bandwidth, {} of the step or more is exposed\n",
            percent(hiding.exposed_share_without_limit)
        ),
    };
    if let Some(simple) = hiding.simple {
        text.push_str(&format!("simple estimate: 2 x bytes of weights / backward time = {} GB/s\n(links without latency, an exchange as long as the backward pass)\n", figure(simple)));
    }
    text
}

fn sensitivity(reacts: &[SensitivityFigures], still: &[String], sum: f64, hidden: bool) -> String {
    let source = |sources: &[String]| match sources {
        [] => String::new(),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (+{})", rest.len()) };
            let short: String = first.chars().take(SOURCE).collect();
            let dots = if first.chars().count() > SOURCE { "…" } else { "" };
            format!("{short}{dots}{more}")
        }
    };
    let row =
        |s: &SensitivityFigures| vec![format!("{:+.2}", s.elasticity), s.parameter.clone(), source(&s.provenance)];
    let rows: Vec<Vec<String>> = reacts.iter().map(row).collect();
    let mut text = aligned(&["% per %", "parameter", "from"], &rows);
    if !still.is_empty() {
        text.push_str(&format!("independent of: {}\n", still.join(", ")));
        let network = |name: &String| name.ends_with("bandwidth") && !name.contains("memory");
        if hidden && still.iter().any(network) {
            text.push_str("(communication is hidden behind computation)\n");
        }
    }
    if (sum + 1.0).abs() > 0.1 {
        text.push_str(&format!(
            "their sum should be -1 and is {:.2}: here, small changes reorder messages and tasks\n",
            sum
        ));
    }
    text
}

fn error_bar(bar: &ErrorBar) -> String {
    match (bar.relative_pct, bar.step_time_low_s, bar.step_time_high_s) {
        (Some(relative), Some(low), Some(high)) => {
            format!("{} to {}, ±{relative:.1} %\n{}", time(low), time(high), bar.basis)
        }
        _ => format!("{}\n{}", bar.basis, kernels(bar)),
    }
}

fn shortcuts(all: &[ShortcutFigures]) -> String {
    let row = |used: &ShortcutFigures| {
        let taken = if used.taken == 0 { "-".to_owned() } else { format!("{} {}", used.taken, used.unit) };
        vec![taken, used.shortcut.clone(), used.why_not.clone().unwrap_or_default()]
    };
    aligned(&["taken", "shortcut", "why not otherwise"], &all.iter().map(row).collect::<Vec<_>>())
}

fn kernels(bar: &ErrorBar) -> String {
    match (bar.kernel_error_pct, bar.step_by_kernels_pct) {
        (Some(single), Some(step)) => format!(
            "kernel times from data sheets are {single:.0} % off on average: the step up to {step:.0} %, less where errors cancel\n"
        ),
        _ => String::new(),
    }
}

/// Percent without the sign.
fn whole(share: f64) -> String {
    format!("{:.0}", 100.0 * share)
}

fn percent(share: f64) -> String {
    format!("{} %", whole(share))
}

/// Seconds as milliseconds.
fn ms(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}

/// `12.34 ms`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.3} us", s * 1e6),
    }
}

/// Three significant digits.
fn figure(value: f64) -> String {
    let places = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.places$}")
}
