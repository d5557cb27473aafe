//! Writes the page of the docs that lists all settings, `docs/settings.md`.

use std::fmt::Write as _;

use crate::setting::{PREDICT, RUN, ReadBy, SWEEP, SettingEntry, TRAIN};
use crate::settings::settings;

const HEAD: &str = "# Settings

Every setting of an experiment, from the table in `models/experiment/src/rows.rs`; `lockstep schema settings` prints this page. Keys
are written in the experiment's file ([experiments.md](experiments.md)); a flag has hyphens for underscores: `batch_per_rank` is
`--batch-per-rank`. *Axis* says that `[sweep]` and `sim sweep` take a list of it ([sweeps.md](sweeps.md)).

| key | what it is | without it | flag of | axis | read by |
|---|---|---|---|---|---|
";

/// The page, generated from the table.
pub fn settings_page() -> String {
    let mut page = HEAD.to_owned();
    for setting in settings() {
        let commands = [(PREDICT, "sim predict"), (RUN, "exec run"), (SWEEP, "sim sweep"), (TRAIN, "exec sweep")];
        let flag_of = commands.iter().filter(|(command, _)| setting.flag(*command).is_some()).map(|(_, name)| *name);
        let reads = match setting.reads {
            ReadBy::Both => "both",
            ReadBy::Prediction => "prediction",
            ReadBy::Run => "run",
        };
        let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
        let axis = setting.axis.as_ref().map_or("", |_| "yes");
        let flag_of = flag_of.collect::<Vec<_>>().join(", ");
        let help = setting.help.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {help} | {default} | {flag_of} | {axis} | {reads} |", name(setting));
    }
    page
}

fn name(setting: &SettingEntry) -> String {
    setting.table.map_or_else(|| setting.key.to_owned(), |table| format!("{table}.{}", setting.key))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_page_of_settings_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(text == super::settings_page(), "write it again: cargo run -- schema settings > docs/settings.md");
    }
}
