//! Checks settings that do not affect both sides of a comparison equally: a setting that only one side supports is
//! refused before anything is measured; one that neither supports, or that is noise on one of them, is reported in a
//! note.

use lockstep_topology::InputError;

use crate::experiment::Experiment;
use crate::settings::settings;
use crate::unlike::Unlike;

pub use crate::unlike::Here;

/// Refuses what only one side of a comparison would follow; returns notes about the rest.
///
/// # Errors
/// The first such setting, at its line, with the cure.
pub fn check(experiment: &Experiment, here: Here) -> Result<Vec<String>, InputError> {
    let mut notes = Vec::new();
    for setting in settings() {
        match setting.unlike {
            Unlike::Never => {}
            Unlike::Refused(wrong) => {
                if let Some((value, message)) = wrong(experiment, here) {
                    return Err(experiment.locate(InputError::flag(setting.key, value, message)));
                }
            }
            Unlike::Noted(note) => notes.extend(note(experiment)),
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { hosts: 1, cores: 16 };

    fn checked(more: &str) -> Result<Vec<String>, InputError> {
        let text = format!("name = \"e\"\nmodel = \"lenet\"\nranks = [2]\n{more}");
        check(&Experiment::parse("e.toml", &text).expect("an experiment"), HERE)
    }

    #[test]
    fn what_only_one_side_supports_is_refused_with_its_line_and_the_cure() {
        let input = "[input]\nsamples = 10\nimage = \"1KiB\"\nthreads = 1\ndecode = \"1ms\"\n[input.provenance]\n\
                     samples = \"assumed: a\"\nimage = \"assumed: a\"\nthreads = \"assumed: a\"\ndecode = \"assumed: a\"\n";
        for (more, cure) in [
            (input, "leave [input] out"),
            ("cluster = \"ethernet-4\"\n", "this-machine"),
            ("cluster = \"dgx1-v100\"\n", "device = \"cuda\""),
            ("cluster = \"ethernet-4:1\"\ndevice = \"cuda\"\n", "no GPUs"),
            ("cluster = \"dgx1-v100\"\ndevice = \"cuda\"\nprecision = \"fp16\"\n", "use fp32, tf32 or bf16"),
            ("cluster = \"dgx-h100\"\ndevice = \"cuda\"\nprecision = \"fp8\"\n", "sim predict"),
            ("precision = \"fp16\"\n", "stores fp32 or bf16"),
            ("cluster = \"dgx-a100\"\ndevice = \"cuda:bf16\"\ngradients = \"half\"\n", "leave it out"),
            ("device = \"null\"\n", "exec run"),
            ("augment = \"crop=4,flip\"\n", "leave it out"),
            ("[anchor]\nimages_per_s = 100.0\n", "leave it out"),
        ] {
            let error = checked(more).expect_err(more);
            assert!(error.place.to_string().starts_with("e.toml:") && error.message.contains(cure), "{more}: {error}");
        }
    }

    #[test]
    fn common_settings_pass_and_unsupported_ones_are_reported() {
        for more in [
            "",
            "cluster = \"ethernet-4:1\"\n",
            "cluster = \"workstation\"\n",
            "sampling = \"partitioned:groups=1\"\n",
            "sampling = \"partitioned:groups=1:shuffle-every=5\"\n",
            "augment = \"patch\"\n",
            "cluster = \"dgx1-v100\"\ndevice = \"cuda\"\n",
            "cluster = \"dgx-a100\"\ndevice = \"cuda:bf16\"\n",
            "cluster = \"dgx-a100\"\ndevice = \"cuda\"\nprecision = \"tf32\"\n",
        ] {
            assert_eq!(checked(more), Ok(Vec::new()), "{more}");
        }
        for (more, word) in [
            ("seeds = 3\n", "seeds = 3"),
            ("target_accuracy = 0.9\n", "target_accuracy"),
            ("recompute_bn = true\n", "recompute_bn"),
            ("[noise]\nkernel = { family = \"lognormal\", cv = 0.1 }\n", "[noise]"),
            ("[sweep]\nranks = [1, 2]\n", "[sweep]"),
            ("[[arm]]\nname = \"a\"\n", "[[arm]]"),
            ("[[scenario]]\nname = \"slow\"\nslow = [{ ranks = [0], factor = 2.0 }]\n", "1 scenario"),
        ] {
            let notes = checked(more).expect(more);
            assert!(notes.len() == 1 && notes[0].contains(word), "{more}: {notes:?}");
        }
    }

    #[test]
    fn a_job_on_several_hosts_is_compared_with_a_cluster_of_equal_size() {
        let text = "name = \"e\"\nmodel = \"lenet\"\ncluster = \"ethernet-4\"\ntransport = \"mpi\"\n";
        let experiment = Experiment::parse("e.toml", text).expect("an experiment");
        assert_eq!(check(&experiment, Here { hosts: 4, ..HERE }), Ok(Vec::new()));
        let error = check(&experiment, HERE).expect_err("refused");
        assert!(error.message.contains("has 4 hosts") && error.message.contains("ranks on 1 hosts"), "{error}");
        let error = check(&experiment, Here { hosts: 4, cores: 2 }).expect_err("refused");
        assert!(error.message.contains("hosts of 16 cores, and this one has 2"), "{error}");
    }
}
