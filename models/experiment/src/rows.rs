//! Lists the settings: everything that an experiment can state, a row each, in the order of their flags in the help.
//!
//! A row gives the field of `Experiment` (where it has one of its own) with its default, and its `Setting`. It is read
//! twice: `experiment` takes the fields, `settings` the rest. Names in a row are those of that module.

macro_rules! rows {
    ($then:ident) => { $then! {
        "model" model: String = String::new(),
        "Model: a name (lockstep models list), a .toml, .onnx or .prototxt (Caffe) file, or a decoder's config.json; variants and sizes behind \
         a colon (resnet-50:image=64, gpt2:layers=2)", {
            value: "MODEL", how: &One(TEXT, |e, model| e.model = model), flag_of: PREDICT | RUN,
            trained: Some((Trained::As, |run| {
                let model = &run.configuration.job.model;
                Some(format!("{} ({} parameters)", model.name(), model.parameter_elements()))
            })),
            axis: Some(SweepAxis {
                help: "Models (lockstep models list), or .toml files", value: "M,…",
                how: &list(TEXT, |e| vec![e.model.clone()], |e, model| e.model = model), ..AXIS
            }),
        }
        "unfold" unfold: bool = false,
        "Restore the batch normalisation that an export in eval mode has folded into the convolutions of an ONNX file", {
            default: "false", how: &One(SWITCH, |e, unfold| e.unfold = unfold), flag_of: PREDICT | RUN,
        }
        "seq_length" seq_length: Option<u32> = None, "Positions of a model of tokens: the tokens of a sample", {
            value: "N", how: &One(COUNT, |e, positions| e.seq_length = Some(positions)), flag_of: PREDICT | RUN,
        }
        "cluster" cluster: String = THIS_MACHINE.to_owned(),
        "Clusters: this-machine (as calibrated), a name (lockstep clusters list), or a .toml file; a run has one", {
            value: "CLUSTER,…", default: "this-machine", how: &Each(TEXT, Experiment::set_clusters),
            flag_of: PREDICT | RUN, in_arms: false, unlike: Unlike::Refused(unlike::cluster),
            axis: Some(SweepAxis {
                help: "Clusters (lockstep clusters list) or .toml files; dgx-a100:1..32 is 1, 2, 4 … 32 hosts of one",
                value: "C,…", how: &list(TEXT, Experiment::all_clusters, |e, cluster| e.set_clusters(vec![cluster])),
                nests: Nests::Outside, ..AXIS
            }),
        }
        "ranks" ranks: Vec<u32> = vec![1], "Numbers of ranks that train, e.g. 8,16,32", {
            value: "N,…", default: "1", how: &Each(COUNT, |e, all| e.ranks = all), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.workers.to_string()))),
            axis: Some(SweepAxis {
                help: "Numbers of ranks that train: 8,16, doublings such as 1..1024, or all (one on each GPU, or core where \
                       there is none)",
                how: &list(Ranges, range::own, range::set), nests: Nests::Inside, ..AXIS
            }),
        }
        "strategy" strategy: Strategy = Strategy::default(),
        concat!(
            "How training is spread over ranks: ", lockstep_models::strategy_forms!(), "and with settings such as zero-3:prefetch=2:no-reshard, \
             hybrid:b:variable-batch, sma:momentum=0.9:tau=2:alpha=0.25:first-come, sma:reference-models, ea-sgd:tau=4:round-robin, \
             local-sgd:tau=4:momentum=0.5"
        ), {
            value: "STRATEGY,…", default: "ssgd", how: &Each(word(), Experiment::set_strategies),
            flag_of: PREDICT | RUN, trained: Some((Trained::As, |run| Some(run.configuration.job.strategy.to_string()))),
            axis: Some(SweepAxis {
                value: "S,…", how: &list(word(), Experiment::all_strategies, |e, one| e.set_strategies(vec![one])), ..AXIS
            }),
        }
        "mesh" mesh: Option<Mesh> = None,
        "Axes of the ranks with their sizes, outer axes first, e.g. data=4,tensor=2; batch_per_rank samples go to each \
         coordinate of data, and of device [default: the strategy's only axis, with all ranks]", {
            value: "AXIS=N,…", how: &One(word(), |e, mesh| e.mesh = Some(mesh)), flag_of: PREDICT | RUN,
            trained: Some((Trained::As, |run| run.configuration.job.mesh.as_ref().map(|mesh| mesh.to_string()))),
        }
        "schedule" schedule: PipelineSchedule = PipelineSchedule::OneForwardOneBackward,
        "Order in which pipeline stages run the passes of --accumulate micro-batches: gpipe, 1f1b, interleaved:V (V chunks of layers per stage) or zb-h1 (gradients of weights are passes of their own)", {
            value: "S", default: "1f1b", how: &One(word(), |e, schedule| e.schedule = schedule), flag_of: PREDICT | RUN,
            trained: Some((Trained::As, |run| in_stages(run, |job| job.schedule.to_string()))),
        }
        "cut" cut: StageCut = StageCut::Work,
        "Where layers are cut into pipeline stages: layers (equal numbers of them), blocks (of a decoder, embedding and loss \
         counting as one each), a layout of blocks as Megatron has it, e.g. 'Et*3|(tt|)*29t|L', work (least FLOPs in the \
         slowest), or the first layer of each chunk but the first, e.g. at=conv3,fc1", {
            value: "C", default: "work", how: &One(word(), |e, cut| e.cut = cut), flag_of: PREDICT | RUN,
            trained: Some((Trained::As, |run| in_stages(run, |job| job.cut.to_string()))),
        }
        "learners",
        "Learners on each device: each rank of --ranks becomes this number of ranks; auto raises it as long as the throughput \
         grows (sma, ea-sgd)", {
            value: "M|auto", default: "1", how: &One(learners::FORM, |e, learners: Learners| e.set_learners(learners)),
            flag_of: PREDICT | RUN, trained: Some((Trained::Apart, |run| Some(run.configuration.learners.to_string()))),
            axis: Some(SweepAxis {
                help: "Learners on each device (sma, ea-sgd), e.g. 1,2,4: each rank becomes this number of ranks", value: "M,…",
                how: &list(learners::NUMBER, |e| vec![e.learners], |e, learners| e.learners = learners), ..AXIS
            }),
        }
        "batch_per_rank", "Samples per rank and micro-batch, e.g. 16,64", {
            value: "N,…", default: "32", how: &Each(COUNT, |e, all| e.batch = e.batch.clone().with_per_rank(all)), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.batch_per_rank.to_string()))),
            axis: Some(SweepAxis {
                how: &list(COUNT, |e| e.batch.per_rank().to_vec(), |e, size| e.batch = e.batch.clone().with_per_rank(vec![size])), ..AXIS
            }),
        }
        "global_batch", "Samples per step over all ranks, divided among them; beside batch_per_rank, the micro-batches of a step follow", {
            value: "N,…", how: &Each(LONG, |e, all| e.batch = e.batch.clone().with_global(all)), flag_of: PREDICT | RUN,
            instead_of: Some("batch_per_rank"),
            axis: Some(SweepAxis {
                how: &list(LONG, |e| e.batch.global().to_vec(), |e, size| e.batch = e.batch.clone().with_global(vec![size])), ..AXIS
            }),
        }
        "accumulate" accumulate: u32 = 1, "Micro-batches per step and rank", {
            value: "N", default: "1", how: &One(COUNT, |e, count| e.accumulate = count), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.accumulate.to_string()))),
            axis: Some(SweepAxis {
                help: "Micro-batches per step and rank, e.g. 1,4",
                how: &list(COUNT, |e| vec![e.accumulate], |e, count| e.accumulate = count), ..AXIS
            }),
        }
        "algorithm" algorithms: Vec<Algorithm> = Vec::new(),
        "Allreduce algorithms, e.g. ring,halving-doubling,multi-color:4,parameter-server:2,hierarchical:ring [default: the \
         library between the cluster's GPUs, else ring]", {
            value: "A,…", how: &Each(ALGORITHM, |e, all| e.algorithms = all), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.algorithm.to_string()))),
            axis: Some(SweepAxis {
                help: "Allreduce algorithms, e.g. ring,hierarchical:halving-doubling", value: "A,…",
                how: &ALGORITHMS, nests: Nests::Inside, exchanges: true,
            }),
        }
        "axis_algorithms" axis_algorithms: AxisAlgorithms = AxisAlgorithms::default(),
        "Algorithms of the exchanges along single axes of the mesh, e.g. tensor=library:nccl,data=hierarchical:ring; exchanges along several take \
         that of the outermost one that has its own [default: for activations along tensor the library between the cluster's GPUs, for others direct, else the algorithm]", {
            value: "AXIS=A,…", how: &One(word(), |e, all| e.axis_algorithms = all), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| {
                let all = &run.configuration.job.axis_algorithms;
                (!all.is_empty()).then(|| all.to_string())
            })),
        }
        "bucket" bucket: Bucket = Bucket::Size(Bytes(25 << 20)),
        "How gradients are cut into exchanges: a size such as 25MiB, layer, whole, or tensor", {
            value: "BUCKET", default: "25MiB", how: &One(word(), |e, bucket| e.bucket = bucket), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.bucket.to_string()))),
            axis: Some(SweepAxis {
                help: "How gradients are cut into exchanges: sizes such as 4MiB, layer, whole, tensor", value: "B,…",
                how: &list(word(), |e| vec![e.bucket], |e, bucket| e.bucket = bucket), ..AXIS
            }),
        }
        "pad" pad: bool = true,
        "Whether exchanges are rounded up to equal parts of all members; --no-pad, or --pad=false, leaves them as long as their buckets", {
            value: "true|false", default: "true", how: &One(CHOICE, |e, pad| e.pad = pad), flag_of: PREDICT | RUN | SWEEP,
            // Rows and checkpoints of builds without padding have no value.
            trained: Some((Trained::With, |run| {
                let job = &run.configuration.job;
                (job.pad && job.workers > 1).then(|| "true".to_owned())
            })),
            identify: |e, all| all.set_some("pad", e.pad.then_some(true)),
        }
        "chunk" chunk: Option<Bytes> = None,
        "Bytes per lane of an exchange, e.g. 256KiB; else the algorithm's own choice", {
            value: "SIZE", how: &One(CHUNK, |e, chunk| e.chunk = Some(chunk)), flag_of: PREDICT | RUN,
            axis: Some(SweepAxis {
                help: "Bytes per lane of an exchange, e.g. 256KiB, or auto (the algorithm's own choice)", value: "SIZE,…",
                how: &CHUNKS, exchanges: true, ..AXIS
            }),
        }
        "concurrent_exchanges" concurrent_exchanges: u32 = 1, "Exchanges in flight at once", {
            value: "N", default: "1", how: &One(COUNT, |e, count| e.concurrent_exchanges = count), flag_of: PREDICT | RUN,
            axis: Some(SweepAxis {
                help: "Exchanges in flight at once, e.g. 1,2,4", exchanges: true,
                how: &list(COUNT, |e| vec![e.concurrent_exchanges], |e, count| e.concurrent_exchanges = count), ..AXIS
            }),
        }
        "scale", "Factors for figures of the clusters", {
            in_file: false, in_arms: false, reads: ReadBy::Prediction,
            axis: Some(SweepAxis {
                help: "Multiply a figure of the clusters, e.g. nic=0.5,1,2 or gpu=1,2 or infiniband-latency=1,4; may be given \
                       several times",
                value: "NAME=F,…", how: &Scales, nests: Nests::Outside, ..AXIS
            }),
        }
        "transport" transport: TransportKind = TransportKind::Threads, "Transport between ranks: threads (memory) or mpi", {
            value: "KIND", default: "threads", how: &One(word(), |e, transport| e.transport = transport),
            flag_of: PREDICT | RUN | SWEEP, in_arms: false, identify: |e, all| all.set("transport", e.transport),
        }
        "ranks_per_node" ranks_per_node: Option<u32> = None,
        "Ranks on each node: the devices used of each host of a cluster, or the neighbouring ranks that form a node on this \
         machine [default: all devices of a host, or the ranks of a process]", {
            value: "N", how: &One(COUNT, |e, count| e.ranks_per_node = Some(count)), flag_of: PREDICT | RUN,
            identify: |e, all| all.set_some("ranks_per_node", e.ranks_per_node),
        }
        "tuner_threshold" tuner_threshold: f64 = DEFAULT_THRESHOLD,
        "Share by which another learner must raise the throughput, with --learners auto [default: 0.05]", {
            value: "SHARE", default: "0.05", how: &One(THRESHOLD, |e, threshold| e.tuner_threshold = threshold),
            flag_of: PREDICT | RUN,
        }
        "sampling" sampling: Sampling = Sampling::OneShuffle,
        "Which ranks share a shuffle of the samples: one-shuffle (all ranks), per-node (each node with a seed of its own), or in memory \
         partitioned:groups=2:shuffle-every=100 (nodes of a group hold the set together and shuffle it)", {
            value: "RULE", default: "one-shuffle", how: &One(word(), |e, sampling| e.sampling = sampling),
            flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| Some(run.configuration.job.sampling.to_string()))),
            identify: |e, all| all.set("sampling", e.sampling),
        }
        "device" device: DeviceChoice = DeviceChoice::Cpu,
        "What measured runs compute on: cpu, cuda (fp32), cuda:tf32, cuda:bf16, or null, on which computing takes no time", {
            value: "DEVICE", default: "cpu", how: &One(word(), |e, device| e.device = device), flag_of: PREDICT | RUN,
            unlike: Unlike::Refused(unlike::device), identify: |e, all| all.set("device", e.device),
        }
        "precision" precision: Option<Precision> = None,
        "The numbers in which layers are trained: fp32, tf32, bf16, fp16 or fp8, the last three beside fp32 weights and optimizer (\"AMP\"; \
         default: what the device says, else fp32)", {
            value: "NUMBERS", default: "fp32", how: &One(word(), |e, precision| e.precision = Some(precision)),
            flag_of: PREDICT | RUN, unlike: Unlike::Refused(unlike::precision),
            trained: Some((Trained::Apart, |run| run.experiment.precision.map(|precision| precision.to_string()))),
            axis: Some(SweepAxis {
                help: "The numbers in which layers are trained, e.g. fp32,tf32,bf16", value: "P,…",
                how: &list(word(), |e| e.precision.into_iter().collect(), |e, precision| e.precision = Some(precision)), ..AXIS
            }),
        }
        "gradients" gradients: Gradients = Gradients::F32,
        "The numbers in which gradients are kept and exchanged: fp32, or half (16 bits, with precision bf16, fp16 or fp8)", {
            value: "NUMBERS", default: "fp32", how: &One(word(), |e, gradients| e.gradients = gradients),
            flag_of: PREDICT | RUN | SWEEP, unlike: Unlike::Refused(unlike::gradients),
            identify: |e, all| all.set_some("gradients", Some(e.gradients).filter(|of| *of != Gradients::F32)),
            trained: Some((Trained::Apart, |run| {
                Some(run.experiment.gradients).filter(|of| *of != Gradients::F32).map(|of| of.to_string())
            })),
        }
        "recompute" recompute: Recompute = Recompute::None,
        "Which activations are dropped after the forward pass and computed again: none, full (all but the last output of each block), \
         full:every=N (of N blocks), or selective with Megatron's modules, e.g. selective:core_attn+layernorm+mlp", {
            value: "WHAT", default: "none", how: &One(word(), |e, recompute| e.recompute = recompute), flag_of: PREDICT | RUN,
            trained: Some((Trained::With, |run| run.configuration.job.recompute.any().map(ToString::to_string))),
            axis: Some(SweepAxis {
                help: "Which activations are computed again, e.g. none,full,full:every=2,selective:mlp", value: "R,…",
                // Rows of sweeps without it have no value.
                how: &list(word(), |e| e.recompute.any().cloned().into_iter().collect(), |e, recompute| e.recompute = recompute), ..AXIS
            }),
        }
        "threads_per_rank" threads_per_rank: u32 = 1, "Threads of each rank", {
            value: "N", default: "1", how: &One(COUNT, |e, count| e.threads_per_rank = count),
            flag_of: PREDICT | RUN | SWEEP, identify: |e, all| all.set("threads_per_rank", e.threads_per_rank),
        }
        "anchor" anchor: Option<Anchor> = None, "Scale computation so that this measured point comes out exactly", {
            value: "ranks=N,images_per_s=X", flag_of: PREDICT, in_arms: false, reads: ReadBy::Prediction,
            how: &One(published::ANCHOR, |e, anchor| e.anchor = Some(anchor)), unlike: Unlike::Refused(unlike::anchor),
            identify: |e, all| e.anchor.iter().for_each(|anchor| anchor.identify(all)),
        }
        "price" price: Vec<f64> = Vec::new(),
        "Price of a device (GPU, or CPU) for an hour in any currency, without its sign, e.g. 2.50; gives the cost of samples and epochs; with \
         several clusters one price, or one for each, e.g. 2.50,1.20", {
            value: "X,…", how: &One(form::PRICES, |e, all| e.price = all), flag_of: PREDICT | SWEEP, in_arms: false,
            reads: ReadBy::Prediction, unlike: Unlike::Noted(unlike::price),
        }
        "data" data: String = "synthetic".to_owned(),
        "Data: mnist, text (the default of models of 256 tokens or more), text-bpe (the default of those of 1024 or more: the same text in \
         tokens of a tokenizer), synthetic, synthetic:SAMPLES, a folder of IDX files, or packed \
         files (lockstep data pack): TRAIN.pack, of which a tenth is held out, or TRAIN.pack+HELD_OUT.pack", {
            value: "DATA", default: "synthetic", how: &One(TEXT, |e, data| e.data = data),
            flag_of: PREDICT | RUN | TRAIN, identify: |e, all| {
                // Predictions depend on the data only by its shuffles' time.
                if e.sampling.shuffles() { all.set("data", &e.data) }
            },
            trained: Some((Trained::As, |run| Some(run.experiment.data_with_tokenizer()))),
        }
        "decode_threads" decode_threads: Option<u32> = None,
        "Threads of each process that prepare batches while ranks compute: by default of packed JPEG or PNG files, and of arrays and augmented \
         samples where a core is left; if stated, of all data [default: one for each core]", {
            value: "N", how: &One(COUNT, |e, count| e.decode_threads = Some(count)), flag_of: RUN | TRAIN, reads: ReadBy::Run,
        }
        "transform_at" transform_at: TransformAt = TransformAt::Host,
        "Where decoded samples are cropped, flipped and normalised: host (the threads that decode), device (before it computes) or \
         when-late (the threads, until a device has waited for them)", {
            value: "WHERE", default: "host", how: &One(word(), |e, at| e.transform_at = at), flag_of: PREDICT | RUN | TRAIN,
            identify: |e, all| all.set_some("transform_at", Some(e.transform_at).filter(|at| *at != TransformAt::Host)),
        }
        "steps", "Optimizer steps", {
            value: "N", default: "50", how: &One(COUNT, |e, steps| e.length = Length::Steps(steps)), flag_of: RUN,
            reads: ReadBy::Run, trained: Some((Trained::With, |run| run.experiment.length.steps().map(|steps| steps.to_string()))),
        }
        "seconds_per_run" seconds_per_run: Option<f64> = None,
        "Of a comparison: each run takes as many steps as fit into these seconds by its prediction, at least 12 and at most steps", {
            how: &One(NOT_NEGATIVE, |e, seconds| e.seconds_per_run = Some(seconds)), reads: ReadBy::Run,
        }
        "epochs", "Passes over the training samples; the error is then the median after each of the last 5", {
            value: "N", how: &One(COUNT, |e, epochs| e.length = Length::Epochs(epochs)), flag_of: RUN, reads: ReadBy::Run,
            instead_of: Some("steps"),
            trained: Some((Trained::With, |run| run.experiment.length.epochs().map(|epochs| epochs.to_string()))),
        }
        "warmup_steps" warmup_steps: Option<u32> = None,
        "Steps at the start that step times leave out, at most all but one; else 5, or a quarter of the steps if that is less", {
            value: "N", how: &One(COUNT, |e, steps| e.warmup_steps = Some(steps)), flag_of: RUN, reads: ReadBy::Run,
        }
        "seed" seed: u64 = 1, "Seed of initial parameters, of the order of the samples and of dropout", {
            value: "N", default: "1", how: &One(SEED, |e, seed| e.seed = seed), flag_of: RUN, in_arms: false,
            reads: ReadBy::Run, identify: |e, all| all.set("seed", e.seed),
            trained: Some((Trained::As, |run| Some(run.seed.to_string()))),
        }
        "seeds" seeds: u32 = 1,
        "Number of seeds to train with in turn, e.g. 5: seed, seed + 1, …; the error is shown with mean and standard deviation", {
            value: "N", default: "1", how: &One(COUNT, |e, seeds| e.seeds = seeds), flag_of: RUN | TRAIN, in_arms: false,
            reads: ReadBy::Run, unlike: Unlike::Noted(unlike::seeds),
        }
        "augment" augmentation: Augmentation = Augmentation::default(),
        "What is done to training samples: none, or some of patch,scale,crop=4,flip (predictions leave its time out)", {
            value: "WHAT", default: "none", how: &One(word(), |e, augmentation| e.augmentation = augmentation), flag_of: RUN,
            reads: ReadBy::Run, unlike: Unlike::Refused(unlike::augmentation),
            trained: Some((Trained::As, |run| Some(run.experiment.augmentation.to_string()))),
        }
        "target_accuracy",
        "End a run when the model (of learners: their average) is that accurate after an epoch, e.g. 0.99", {
            value: "X", how: &One(ACCURACY, |e, share| e.target.accuracy = Some(share)), flag_of: RUN, in_arms: false,
            reads: ReadBy::Run, unlike: Unlike::Noted(unlike::target),
        }
        "target_epochs", "Compare the median accuracy of the last N epochs with the target, e.g. 5", {
            value: "N", default: "1", how: &One(COUNT, |e, epochs| e.target.epochs = epochs), flag_of: RUN, in_arms: false,
            reads: ReadBy::Run,
        }
        "recompute_bn" recompute_bn: bool = false,
        "Recompute batch norm's statistics over an epoch of training samples before each evaluation", {
            default: "false", how: &One(SWITCH, |e, yes| e.recompute_bn = yes), flag_of: RUN, reads: ReadBy::Run,
            unlike: Unlike::Noted(unlike::recompute_bn),
            trained: Some((Trained::Apart, |run| Some(run.experiment.recompute_bn.to_string()))),
        }
        "recipe" recipe: Option<Recipe> = None,
        "Train as a paper did, e.g. goyal2017, iandola2016:nin, or FILE.toml; the flags below replace what it says", {
            value: "NAME", how: &ByName, flag_of: RUN, reads: ReadBy::Run, first: true,
            trained: Some((Trained::As, |run| Some(run.recipe()))),
        }
        "solver" solver: Option<Solver> = None,
        "Train as a Caffe solver.prototxt says: its net, batch, rates, momentum, decay, iter_size, max_iter; other flags replace what it \
         says", {
            value: "FILE", how: &BySolver, flag_of: PREDICT | RUN, in_arms: false, first: true,
        }
        "from" from: Option<Foreign> = None,
        "Take the settings in a file of another framework, those that nothing else sets, or in { file = FILE, ignore = true }", {
            how: &SettingTable(|e, entry| Foreign::of(entry).map(|from| e.from = Some(from))), in_arms: false,
        }
        "weights" weights: Option<String> = None,
        "Start from these weights: of a decoder a .safetensors, an index of several, or a folder with either, as transformers names \
         tensors; or a .caffemodel, matched by layer name", {
            value: "FILE|DIR", how: &One(TEXT, |e, file| e.weights = Some(file)), flag_of: RUN, reads: ReadBy::Run,
            trained: Some((Trained::As, |run| run.experiment.weights.clone())),
        }
        "name" name: String = String::new(), "What the experiment is called; files are named after it", {
            how: &SettingTable(|e, entry| form::name(entry).map(|name| e.name = name)), reads: ReadBy::Run,
            trained: Some((Trained::Apart, |run| Some(run.experiment.name.clone()))),
        }
        "fuse" fuse: bool = true, "Whether a layer and those that change its output element by element are one kernel", {
            default: "true", how: &One(CHOICE, |e, fuse| e.fuse = fuse), identify: |e, all| all.set("fuse", e.fuse),
        }
        "growth" growth: Vec<Growth> = Vec::new(), "Learners that join once some epochs are done, e.g. 4@6", {
            how: &Each(word(), |e, all| e.growth = all), reads: ReadBy::Run,
            trained: Some((Trained::Apart, |run| Some(run.experiment.growth_text()))),
        }
        "optimizer" optimizer: Optimizer = Optimizer::default(),
        "Optimizer: sgd, adam or adamw; in a file its name, or the table of name, rate and decays", {
            value: "NAME", default: "sgd", how: &optimizer::Named, flag_of: PREDICT | RUN | SWEEP,
            identify: |e, all| all.set("optimizer", &e.optimizer),
        }
        "init" inits: InitRules = InitRules::default(), "Table of initial values that replace the model's", {
            how: &SettingTable(|e, entry| initial::read(e, entry)), reads: ReadBy::Run,
        }
        "published" published: Option<Published> = None, "Table of figures that others measured, to compare with", {
            how: &SettingTable(|e, entry| published::published(entry).map(|all| e.published = Some(all))),
            reads: ReadBy::Prediction,
        }
        "noise" noise: Option<StatedNoise> = None, "Table of what varies, and by which distributions", {
            how: &SettingTable(|e, entry| noise::read(entry).map(|noise| e.noise = Some(noise))), in_arms: false,
            identify: |e, all| e.noise.iter().for_each(|noise| noise.identify(all)),
            reads: ReadBy::Prediction, unlike: Unlike::Noted(unlike::noise),
        }
        "input" input: Option<StatedInput> = None, "Table of how samples reach the devices", {
            how: &SettingTable(|e, entry| {
                e.input = Some(input::read(e.input.as_ref(), entry)?);
                e.place_keys(entry)
            }),
            identify: |e, all| e.input.iter().for_each(|input| input.identify(all)),
            reads: ReadBy::Prediction, unlike: Unlike::Refused(unlike::input),
        }
        "sweep" sweep: Axes = Axes::default(), "Table of lists instead of single values, for sim sweep alone", {
            in_arms: false, reads: ReadBy::Prediction, unlike: Unlike::Noted(unlike::sweep),
        }
        "arm" arms: Vec<Arm> = Vec::new(), "Tables of ways to train, for exec sweep alone", {
            in_arms: false, reads: ReadBy::Run, unlike: Unlike::Noted(unlike::arms),
        }
        "scenario" scenarios: Vec<Scenario> = Vec::new(), "Tables of what may go wrong", {
            how: &SettingTable(|e, entry| scenario::read(entry).map(|all| e.scenarios = all)), in_arms: false,
            reads: ReadBy::Prediction, unlike: Unlike::Noted(unlike::scenarios),
        }
    } };
}
