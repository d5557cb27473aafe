//! Tests decoders: parameters of published models, a closed form for any, what a `config.json` may say.

use proptest::prelude::*;

use super::*;
use crate::config;
use crate::decoder::{self, Decoder, Norm, Norms, QueryNorm};
use lockstep_topology::ErrorPlace;

/// The totals of the published weights.
#[test]
fn models_of_the_zoo_have_the_published_parameters() {
    let cases = [
        // 12·128² · 4 + 13·128 · 4 + 256 · 128 + 64 · 128 + 2 · 128.
        ("gpt2-char", 834_304),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3-175b", 174_604_259_328),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("mistral-7b", 7_241_732_096),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("gpt", 124_439_808),
        // A layer of Llama 3 405B has 2·16384² + 2·16384·1024 + 3·16384·53248 + 2·16384.
        ("llama-3-405b:layers=4", 4 * 3_187_703_808 + 2 * 128_256 * 16_384 + 16_384),
        // Narayanan et al. 2021, Table 1, row 2: 3.6 billion by 12·l·h²·(1 + 13/12h + (V + s)/12lh).
        ("gpt:hidden=3072,layers=30,heads=32,vocabulary=51200,positions=2048", 3_562_168_320),
    ];
    let of_zoo = |name: &String| load_model(name).expect("in the zoo").tokens().is_some();
    let decoders: Vec<String> = zoo().into_iter().filter(of_zoo).collect();
    assert!(decoders.iter().all(|name| cases.iter().any(|(known, _)| known == name)), "{decoders:?}");
    let mut wrong = Vec::new();
    for (name, parameters) in cases {
        let model = load_model(name).unwrap_or_else(|error| panic!("{error}"));
        let found = model.parameter_elements();
        wrong.extend((found != parameters).then(|| format!("{name}: {found} instead of {parameters}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The model of a `config.json`.
fn read(text: &str) -> Result<Model, InputError> {
    config::parse("models/tiny/config.json", text, "")
}

/// Files of each architecture, as published but for keys without effect, and the parameters of their weights.
#[test]
fn files_of_every_architecture_have_the_published_parameters() {
    let llama = |model: &str, more: &str, sizes: [u64; 6]| {
        let [vocabulary, hidden, inner, layers, heads, key_heads] = sizes;
        format!(
            "{{\"architectures\": [\"X\"], \"model_type\": \"{model}\", \"vocab_size\": {vocabulary}, \"hidden_size\": {hidden}, \
             \"intermediate_size\": {inner}, \"num_hidden_layers\": {layers}, \"num_attention_heads\": {heads}, \
             \"num_key_value_heads\": {key_heads}, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-06, \
             \"torch_dtype\": \"bfloat16\", \"use_cache\": true{more}}}"
        )
    };
    let tied = ", \"tie_word_embeddings\": true";
    let qwen2 = ", \"max_window_layers\": 24, \"sliding_window\": 32768, \"use_sliding_window\": false, \"rope_theta\": 1000000.0";
    let scaled = ", \"tie_word_embeddings\": true, \"head_dim\": 64, \"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 32.0, \
                  \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}";
    let gemma2 = ", \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 256, \
                  \"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30.0";
    let neox = "{\"model_type\": \"gpt_neox\", \"vocab_size\": 50688, \"hidden_size\": 4096, \"intermediate_size\": 16384, \
                \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"max_position_embeddings\": 2048, \"rotary_pct\": 0.25, \
                \"rotary_emb_base\": 10000, \"layer_norm_eps\": 1e-05, \"use_parallel_residual\": true, \"hidden_act\": \"gelu\", \
                \"tie_word_embeddings\": false}";
    let gpt2 = "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_positions\": 1024, \"n_ctx\": 1024, \"n_embd\": 768, \
                \"n_layer\": 12, \"n_head\": 12, \"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"summary_type\": null}";
    let cases = [
        ("gpt2", gpt2.to_owned(), 124_439_808),
        ("Llama 3.2 1B", llama("llama", scaled, [128_256, 2048, 8192, 16, 32, 8]), 1_235_814_400),
        (
            "Mistral 7B",
            llama("mistral", ", \"sliding_window\": 4096", [32_000, 4096, 14_336, 32, 32, 8]),
            7_241_732_096,
        ),
        ("Qwen2 0.5B", llama("qwen2", &format!("{qwen2}{tied}"), [151_936, 896, 4864, 24, 14, 2]), 494_032_768),
        ("Qwen2 7B", llama("qwen2", qwen2, [152_064, 3584, 18_944, 28, 28, 4]), 7_615_616_512),
        ("Qwen2 72B", llama("qwen2", qwen2, [152_064, 8192, 29_568, 80, 64, 8]), 72_706_203_648),
        (
            "Qwen3 8B",
            llama("qwen3", ", \"head_dim\": 128, \"attention_bias\": false", [151_936, 4096, 12_288, 36, 32, 8]),
            8_190_735_360,
        ),
        (
            "Gemma 7B",
            llama("gemma", ", \"head_dim\": 256, \"hidden_act\": \"gelu\"", [256_000, 3072, 24_576, 28, 16, 16]),
            8_537_680_896,
        ),
        ("Gemma 2 9B", llama("gemma2", gemma2, [256_000, 3584, 14_336, 42, 16, 8]), 9_241_705_984),
        ("Phi-4", llama("phi3", ", \"sliding_window\": null", [100_352, 5120, 17_920, 40, 40, 10]), 14_659_507_200),
        // Black et al. 2022 for its kind; of the published Pythia 6.9B.
        ("Pythia 6.9B", neox.replace("50688", "50432"), 6_857_302_016),
        // Of the published weights of OLMo 2 7B, 7,298,617,344: queries and keys are normalised over all heads.
        ("OLMo 2 7B", llama("olmo2", ", \"rope_theta\": 500000", [100_352, 4096, 11_008, 32, 32, 32]), 7_298_617_344),
    ];
    let mut wrong = Vec::new();
    for (name, text, parameters) in cases {
        let model = read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = model.parameter_elements();
        wrong.extend((found != parameters).then(|| format!("{name}: {found} instead of {parameters}")));
        assert_eq!(model.name(), "tiny");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let model = read(gpt2).expect("as above");
    assert_eq!(model.notes(), ["dropout of the file is left out: attn_pdrop = 0.1"]);
}

/// GLM-4 has four norms a layer, Gemma 3 those and norms of queries and keys, with windows in five of six layers.
#[test]
fn layers_of_other_architectures_by_hand() {
    let sizes = "\"vocab_size\": 32, \"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 6, \
                 \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-5";
    let glm =
        read(&format!("{{\"model_type\": \"glm4\", {sizes}, \"head_dim\": 4, \"attention_bias\": true}}")).unwrap();
    // 16·16 + 2·16·8 with biases of 16 + 8 + 8, 16·16, 3·16·24, 4 norms of 16.
    assert_eq!(glm.parameter_elements(), 2 * 32 * 16 + 16 + 6 * (512 + 32 + 256 + 1152 + 64));
    let Layer::Rotary(rotary) = &named(&glm, "layers.0.key_rotary").1.layer else { panic!("turns keys") };
    assert_eq!((rotary.heads, rotary.fraction, rotary.turned(4)), (2, 0.5, 2));
    let gemma = read(&format!(
        "{{\"model_type\": \"gemma3_text\", {sizes}, \"head_dim\": 4, \"sliding_window\": 4, \"query_pre_attn_scalar\": 16}}"
    ));
    let gemma = gemma.unwrap();
    assert_eq!(gemma.parameter_elements(), 32 * 16 + 16 + 6 * (512 + 256 + 1152 + 64 + 2 * 4));
    let attention = |layer: u32| match &named(&gemma, &format!("layers.{layer}.attention")).1.layer {
        Layer::Attention(attention) => (attention.window, attention.scale),
        _ => panic!("attends"),
    };
    let theta = |layer: u32| match &named(&gemma, &format!("layers.{layer}.query_rotary")).1.layer {
        Layer::Rotary(rotary) => rotary.theta,
        _ => panic!("turns queries"),
    };
    assert_eq!(
        (attention(0), attention(4), attention(5)),
        ((Some(4), Some(0.25)), (Some(4), Some(0.25)), (None, Some(0.25)))
    );
    assert_eq!((theta(0), theta(5)), (10_000.0, 1_000_000.0));
}

/// Any decoder of small sizes.
pub(crate) fn decoders() -> impl Strategy<Value = Decoder> {
    let sizes = (2u32..40, 1u32..9, 1u32..4, 1u32..4, 1u32..4, 1u32..5, 1u32..30);
    let flags = prop::collection::vec(any::<bool>(), 10);
    let kinds = (0usize..3, 0usize..3, 0usize..3);
    (sizes, flags, kinds).prop_map(|((vocabulary, positions, layers, key_heads, each, half, inner), flags, kinds)| {
        Decoder {
            vocabulary,
            positions,
            hidden: 2 * half * key_heads * each,
            layers,
            heads: key_heads * each,
            key_heads: Some(key_heads),
            head_width: flags[0].then_some(2 * half + 2),
            feed_forward: flags[1].then_some(inner),
            norm: [Norm::Layer, Norm::Rms, Norm::RmsUnitOffset][kinds.0],
            norms: [Norms::Before, Norms::After, Norms::Both][kinds.1],
            query_norm: [QueryNorm::None, QueryNorm::Heads, QueryNorm::Whole][kinds.2],
            parallel: flags[2],
            gated: flags[3],
            learned_positions: flags[4],
            theta: flags[5].then_some(10_000.0),
            attention_bias: flags[6],
            output_bias: flags[7],
            feed_forward_bias: flags[8],
            tied: flags[9],
            window: flags[0].then_some(2),
            ..Decoder::default()
        }
    })
}

proptest! {
    /// The parameters of any decoder are those of its matrices, biases and norms.
    #[test]
    fn parameters_equal_a_closed_form(of in decoders()) {
        let model = decoder::build(&of, ("d".to_owned(), String::new()), &ErrorPlace::None).unwrap();
        let [vocabulary, positions, hidden, layers] = [of.vocabulary, of.positions, of.hidden, of.layers].map(u64::from);
        let width = u64::from(of.head_width.unwrap_or(of.hidden / of.heads));
        let [queries, keys] = [of.heads, of.key_heads.unwrap()].map(|heads| u64::from(heads) * width);
        let inner = of.feed_forward.map_or(4 * hidden, u64::from);
        let flag = u64::from;
        let norm = |features: u64| features * if of.norm == Norm::Layer { 2 } else { 1 };
        let attention = hidden * (queries + 2 * keys) + queries * hidden + flag(of.attention_bias) * (queries + 2 * keys)
            + flag(of.output_bias) * hidden;
        let products = 2 + flag(of.gated);
        let feed_forward = products * hidden * inner + flag(of.feed_forward_bias) * ((products - 1) * inner + hidden);
        let norms = if of.norms == Norms::Both { 4 } else { 2 } * norm(hidden);
        let query_norms = match of.query_norm {
            QueryNorm::None => 0,
            // By root mean squares, whatever the norm of features.
            QueryNorm::Heads => 2 * width,
            QueryNorm::Whole => norm(queries) + norm(keys),
        };
        let tables = vocabulary * hidden * (2 - flag(of.tied)) + flag(of.learned_positions) * positions * hidden;
        let expected = tables + layers * (attention + feed_forward + norms + query_norms) + norm(hidden);
        prop_assert_eq!(model.parameter_elements(), expected, "{:?}", of);
        prop_assert_eq!((model.tokens(), model.positions()), (Some(of.vocabulary), Some(of.positions)));
    }
}

#[test]
fn bad_files_are_refused_with_line_and_cure() {
    let text = "{\n\"model_type\": \"llama\",\n\"vocab_size\": 32,\n\"hidden_size\": 16,\n\"intermediate_size\": 24,\n\
                \"num_hidden_layers\": 2,\n\"num_attention_heads\": 4,\n\"max_position_embeddings\": 8,\n\"rms_norm_eps\": 1e-5\n}";
    assert!(read(text).is_ok());
    let cases = [
        ("\"llama\"", "\"mamba2\"", "config.json:2: model_type: \"mamba2\": is not read"),
        ("\"model_type\": \"llama\",\n", "", "lacks the key model_type"),
        ("\"hidden_size\": 16,\n", "", "lacks the key hidden_size"),
        ("\"hidden_size\": 16", "\"hidden_size\": -16", "config.json:4: hidden_size: -16: must be a whole number"),
        ("\"hidden_size\": 16", "\"hidden_size\": 18", "4 heads do not divide hidden = 18"),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 16,\n\"num_experts\": 8",
            "config.json:5: num_experts: 8: llama has no such key here",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 16, \"hidden_act\": \"softplus\"",
            "hidden_act: \"softplus\": must be one of",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 16, \"rope_scaling\": {\"rope_type\": \"longrope\"}",
            "\"longrope\" is no scaling",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 16, \"rope_scaling\": {\"type\": \"linear\"}",
            "lacks the key factor",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 16, \"num_key_value_heads\": 3",
            "has 4 heads of queries and 3 of keys",
        ),
        ("\"vocab_size\": 32", "\"vocab_size\": 1", "a loss needs two classes or more"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000000", "more than 20000 layers"),
        ("}", "", "config.json:10: is no JSON"),
    ];
    for (from, to, wanted) in cases {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let error = read(&changed).map(|model| model.parameter_elements()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{from} -> {to}: {error}");
    }
}

#[test]
fn keys_behind_a_name_are_those_of_a_decoder() {
    let refused = |name: &str| load_model(name).map(|model| model.parameter_elements()).unwrap_err().to_string();
    for (name, wanted) in [
        ("gpt:hiden=64", "a decoder has no key \"hiden\": did you mean hidden?"),
        ("gpt:hidden", "hidden has no value: write key=value"),
        ("gpt:layers=0", "layers = 0: must be a whole number from 1 to"),
        ("gpt:norm=batch", "norm = batch: must be one of layer, rms, rms-unit-offset"),
        ("gpt:heads=5", "5 heads do not divide hidden = 768"),
        ("gpt:scaling=ntk:2", "must be none, linear:FACTOR"),
        ("gpt:tied=perhaps", "tied = perhaps: must be true or false"),
        ("gpt2:layers=2,heads=4,layers=3", "layers is given two values, 2 and 3: leave one out"),
        ("gpt2:positions=64,positions=32", "positions is given two values, 64 and 32 (--seq-length states them too)"),
        ("gpt:rotary_fraction=0.5", "rotary_fraction has no effect without theta: leave it out, or state theta"),
        ("gpt:pairing=neighbours", "pairing has no effect without theta"),
        ("gpt:scaling=linear:2", "scaling has no effect without theta"),
        ("gpt:window=4,local_theta=100", "local_theta has no effect without theta"),
        ("llama-3.2-1b:theta=none", "scaling has no effect without theta"),
        ("llama-3-8b:local_theta=100", "local_theta has no effect without window"),
        ("gpt:windowed=from:2", "windowed has no effect without window"),
        ("llama-3-8b:scaling=llama3:8:1:4:8192.5", "must be none, linear:FACTOR"),
        ("llama-3-8b:scaling=llama3:8:1:4", "must be none, linear:FACTOR"),
        ("llama-3-8b:scaling=yarn:8:32:1:0", "must be none, linear:FACTOR"),
        ("llama-3-8b:scaling=linear:8:1", "must be none, linear:FACTOR"),
        ("llama-3-8b:scaling=none:1", "must be none, linear:FACTOR"),
    ] {
        let error = refused(name);
        assert!(error.contains(wanted), "{name}: {error}");
    }
    let model =
        load_model("llama-3-8b:layers=2,hidden=64,heads=4,key_heads=2,feed_forward=96,vocabulary=50,positions=16")
            .unwrap();
    assert_eq!((model.tokens(), model.positions()), (Some(50), Some(16)));
    let text = "name = \"m\"\n[decoder]\nlike = \"llama\"\nhidden = 64\nheads = 7\n";
    let error = parse_model("m.toml", text).map(|model| model.parameter_elements()).unwrap_err().to_string();
    assert!(error.contains("m.toml:2") && error.contains("7 heads do not divide hidden = 64"), "{error}");
}

/// A note says when a sequence is longer than those that the model's file states, and no other does.
#[test]
fn more_positions_than_stated_are_noted() {
    let notes = |name: &str| load_model(name).unwrap_or_else(|error| panic!("{error}")).notes().to_vec();
    assert_eq!(notes("gpt2:layers=1,positions=2048"), ["2048 positions, and gpt2 states 1024"]);
    for name in ["gpt2:layers=1", "gpt2:layers=1,positions=1024", "gpt:positions=4096,layers=1", "gpt2:positions=8"] {
        assert!(notes(name).is_empty(), "{name}");
    }
    let text = "{\"model_type\": \"gpt2\", \"vocab_size\": 32, \"n_positions\": 16, \"n_embd\": 8, \"n_layer\": 1, \
                \"n_head\": 2, \"attn_pdrop\": 0.1}";
    let notes = |settings: &str| config::parse("tiny/config.json", text, settings).unwrap().notes().to_vec();
    assert_eq!(notes("positions=16"), ["dropout of the file is left out: attn_pdrop = 0.1"]);
    let longer = notes("positions=17,positions=17");
    assert_eq!(longer[1..], ["17 positions, and tiny/config.json states 16"]);
}
