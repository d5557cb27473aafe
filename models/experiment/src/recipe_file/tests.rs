//! Tests the papers' rates at listed epochs, and what is refused in a file of recipes.

use lockstep_models::{MomentumForm, RunLength};

use super::*;

/// Rate of the recipe `name` at an epoch of a run over ImageNet's 1,281,167 images.
fn rate(name: &str, global_batch: u64, epoch: f64) -> f64 {
    let recipe = Recipe::load(name).unwrap();
    let steps_per_epoch = 1_281_167 / global_batch;
    let run_length =
        RunLength { global_batch, steps_per_epoch, steps: u64::from(recipe.epochs.unwrap()) * steps_per_epoch };
    recipe.optimizer.rate((epoch * steps_per_epoch as f64).ceil() as u64, &run_length)
}

#[test]
fn rates_at_listed_epochs() {
    let fall = 250f64.powf(-1.0 / 3.0);
    for (name, batch, epoch, wanted) in [
        // Goyal et al. 2017, §5.1: 0.1·kn/256, ÷10 at 30, 60, 80; §5.3: warm-up from 0.1 where kn > 256.
        ("goyal2017", 256, 0.0, 0.1),
        ("goyal2017", 8192, 0.0, 0.1),
        ("goyal2017", 8192, 5.0, 3.2),
        ("goyal2017", 8192, 29.0, 3.2),
        ("goyal2017", 8192, 30.0, 0.32),
        ("goyal2017", 8192, 60.0, 0.032),
        ("goyal2017", 8192, 80.0, 0.0032),
        ("goyal2017:no-warm-up", 8192, 0.0, 3.2),
        ("goyal2017:constant-warm-up", 8192, 4.9, 0.1),
        ("goyal2017:constant-warm-up", 8192, 5.0, 3.2),
        ("goyal2017:square-root", 8192, 10.0, 0.1 * 32f64.sqrt()),
        ("goyal2017:fixed", 8192, 10.0, 0.1),
        // Krizhevsky 2014, §5.
        ("krizhevsky2014", 128, 22.0, 0.01),
        ("krizhevsky2014", 128, 22.5, 0.01 * fall),
        ("krizhevsky2014", 128, 45.0, 0.01 * fall * fall),
        ("krizhevsky2014", 1024, 67.5, 0.08 / 250.0),
        ("krizhevsky2014:square-root-1024", 1024, 0.0, 0.01 * 8f64.sqrt()),
        // Iandola et al. 2016, §7.2, §7.3: √(1 − 54/72) = ½.
        ("iandola2016:nin", 256, 0.0, 0.01),
        ("iandola2016:nin", 1024, 0.0, 0.04),
        ("iandola2016:nin", 1024, 40.0, 0.0004),
        ("iandola2016:googlenet-32", 32, 0.0, 0.01),
        ("iandola2016:googlenet-1024", 1024, 54.0, 0.04),
        // Koliousis et al. 2019, §5.1, §3.2.
        ("koliousis2019:resnet-32", 64, 79.0, 0.1),
        ("koliousis2019:resnet-32", 64, 80.0, 0.01),
        ("koliousis2019:resnet-32", 64, 120.0, 0.001),
        ("koliousis2019:vgg-16", 256, 40.0, 0.025),
        ("koliousis2019:resnet-50", 16, 60.0, 0.001),
        // Kumar et al. 2018, §5: 32 nodes of 4 GPUs with 64 each.
        ("kumar2018", 8192, 0.0, 0.1),
        ("kumar2018", 8192, 5.0, 3.2),
        ("kumar2018", 8192, 30.0, 0.32),
        ("kumar2018", 8192, 60.0, 0.032),
    ] {
        let got = rate(name, batch, epoch);
        assert!((got / wanted - 1.0).abs() < 1e-6, "{name} at {batch}, epoch {epoch}: {got}, not {wanted}");
    }
}

/// Krizhevsky 2014, §5: k applications of the decay at N are one at k·N.
#[test]
fn krizhevskys_weight_decay() {
    let (rate, decay, k) = (0.01f64, 0.0005f64, 8);
    let theory = (1.0 - (1.0 - rate * decay).powi(k)) / (f64::from(k).sqrt() * rate);
    let recipe = Recipe::load("krizhevsky2014:square-root-1024").unwrap();
    assert!((theory - 0.0014141888).abs() < 5e-11, "{theory}");
    assert_eq!((recipe.optimizer.weight_decay, recipe.global_batch), (0.0014141888, Some(1024)));
    assert_eq!(recipe.optimizer.form, MomentumForm::Absorbed);
}

#[test]
fn goyals_recipe_in_full() {
    let recipe = Recipe::load("goyal2017").unwrap();
    assert_eq!((recipe.name.as_str(), recipe.epochs), ("goyal2017:resnet-50", Some(90)));
    let wanted = "rate 0.1 (scaling linear:256), warm-up gradual:5, decay steps:0.1@30,60,80, momentum 0.9 (separate, \
                  nesterov), weight decay 0.0001 (not on batch norm)";
    assert_eq!(recipe.optimizer.to_string(), wanted);
    let model = lockstep_readers::load_model("resnet-50").unwrap().with_inits(&recipe.inits);
    assert_eq!(model.inits(), "weight he ×53, gaussian:0.01 ×1; gamma 1 ×37, 0 ×16; beta 0 ×53; bias 0 ×1");
}

#[test]
fn all_recipes_are_valid_and_have_unique_names() {
    let all = Recipe::all();
    let mut names: Vec<&str> = all.iter().map(|recipe| recipe.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|recipe| recipe.epochs.is_some() && Recipe::load(&recipe.name).as_ref() == Ok(recipe)));
}

#[test]
fn errors_name_their_place() {
    let refused = |text: &str| Recipe::parse("r.toml", text).unwrap_err().to_string();
    for (text, words) in [
        ("recipe = []", "lacks the key source"),
        ("source = \"s\"\nrecipe = []", "at least one"),
        ("source = \"s\"\n[[recipe]]\nname = \"a\"", "lacks the key optimizer"),
        ("source = \"s\"\n[[recipe]]\nname = \"a\"\nepoch = 3\noptimizer = {}", "did you mean epochs?"),
        ("source = \"s\"\n[[recipe]]\nname = \"a\"\noptimizer = { decay = \"step:1\" }", "r.toml:4"),
        ("source = \"s\"\n[[recipe]]\nname = \"a\"\noptimizer = {}\ninit = { dense = \"hee\" }", "he, xavier"),
    ] {
        assert!(refused(text).contains(words), "{text}: {}", refused(text));
    }
    for (name, words) in [
        ("goyal", "did you mean goyal2017"),
        ("no-paper", "there are goyal2017, "),
        ("goyal2017:resnet", "goyal2017:resnet-50"),
    ] {
        let error = Recipe::load(name).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
