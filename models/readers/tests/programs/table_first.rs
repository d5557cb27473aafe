//! Tests models where the first device of each node holds the table.

use super::*;

#[test]
fn googlenet_has_three_losses_after_all_other_layers() {
    let whole = load_model("googlenet:auxiliary").unwrap();
    let (model, layers) = node_first(&whole).unwrap();
    let kinds: Vec<bool> = model.layers().iter().map(|node| node.layer.is_loss()).collect();
    assert_eq!(kinds[kinds.len() - 6..], [false, true, false, true, false, true]);
    assert!(kinds[..kinds.len() - 6].iter().all(|loss| !loss));
    assert_eq!(layers.len(), model.layers().len());
    for (node, layer) in model.layers().iter().zip(&layers) {
        let origin = whole.node(layer.origin);
        // Parameters are the whole model's, in its order.
        let ranges = |node: &Node| node.parameters.iter().map(|p| p.range.clone()).collect::<Vec<_>>();
        let gather = node.layer.is_relayout();
        assert!(gather || (ranges(node) == ranges(origin) && node.name == origin.name), "{}", node.name);
        assert_eq!(node.output, origin.output);
    }
}

#[test]
fn scores_with_other_consumers_are_refused() {
    let text = "name = \"m\"\ninput = [1, 2, 2]\nlayer = [\n{ name = \"one\", kind = \"dense\", out_features = 3 },\n\
                { name = \"side\", kind = \"softmax_cross_entropy\", inputs = [\"one\"], loss_weight = 0.3 },\n\
                { name = \"two\", kind = \"dense\", out_features = 3, inputs = [\"one\"] },\n\
                { name = \"loss\", kind = \"softmax_cross_entropy\" },\n]\n";
    let refused = node_first(&parse_model("m.toml", text).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("one goes to side and to other layers") && refused.contains("use ssgd"), "{refused}");
}
