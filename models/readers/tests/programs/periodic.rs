//! Tests what evaluations and checkpoints collect of models that ranks hold in parts.

use super::*;

/// Elements of the exchange by which rank 0 collects the model.
fn collected(work: &Program) -> u64 {
    let exchanges = work.roles[0].exchanges().map(|(_, exchange)| exchange);
    exchanges.filter(|exchange| exchange.buffer == Periodic::MODEL).map(|exchange| exchange.range.end).sum()
}

/// An evaluation needs the parameters that rank 0 lacks; a checkpoint also both moments of AdamW that it lacks.
#[test]
fn evaluations_collect_parameters_and_checkpoints_states_too() {
    let model = Arc::new(load_model("gpt2-char:layers=2,hidden=32,heads=4").unwrap());
    let whole = model.parameter_elements();
    for (strategy, mesh) in [
        ("zero-1", "data=3"),
        ("zero-2", "data=2"),
        ("zero-3", "data=2"),
        ("megatron", "tensor=2"),
        ("megatron:zero-1", "data=2,tensor=2"),
        ("ssgd", "pipeline=2"),
        ("zero-1", "data=2,pipeline=2"),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let ranks = mesh.ranks();
        let job = Job {
            strategy: strategy.parse().unwrap(),
            rule: UpdateRule::AdamW,
            accumulate: 2,
            mesh: Some(mesh.clone()),
            ..Job::new(model.clone(), ranks, 4)
        };
        let program = job.program().unwrap();
        let pieces = |pieces: &Pieces| pieces.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        let of_rank = |rank: u32| program.collected_pieces(rank).map(|of| pieces(&of));
        let others = (1..ranks).filter(|rank| program.holders().contains(*rank)).map(of_rank);
        let [parameters, states] = others.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        let evaluation = collected(&program.evaluation(8, 0).unwrap());
        let checkpoint = collected(&program.checkpoint().unwrap());
        assert_eq!((evaluation, checkpoint), (parameters, parameters + 2 * states), "{strategy} on {mesh}");
        // Norms are on all ranks along `tensor`, and a tied parameter on two stages: each sends what it has.
        let missing = whole - of_rank(0)[0];
        assert!(
            evaluation >= missing && (mesh.size(Axis::Data) < ranks || evaluation == missing),
            "{strategy} on {mesh}"
        );
        assert!(checkpoint > evaluation, "{strategy} on {mesh}");
    }
}
