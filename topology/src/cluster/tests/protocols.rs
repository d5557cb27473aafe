//! Tests the cost of messages on links: headers by hand, the farthest stack of a route, its caps.

use super::device_named;
use crate::cluster::*;
use crate::{Bytes, Time};

const CPU: &str = "[host.cpu]\ncores = 1\nflops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \"10GB/s\"\nmemory = \"1GiB\"\n\
                   message_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n";
const GPUS: &str = "[[host.gpu]]\nname = \"gpu\"\ncount = 2\nmodel = \"m\"\nmultiprocessors = 1\npeak_flops = \"1TFLOP/s\"\n\
                    memory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\n";

/// Two hosts, each two GPUs under a PCIe switch, with these keys on the PCIe links and on the Ethernet.
fn two(all: &str, pcie: &str, ethernet: &str) -> String {
    let link = |table: &str, kind: &str, one: &str, other: &str, rate: &str, keys: &str| {
        format!(
            "[[{table}]]\nkind = \"{kind}\"\nbetween = [\"{one}\", \"{other}\"]\nlatency = \"1us\"\n\
             bandwidth = \"{rate}\"\n{keys}\n"
        )
    };
    format!("name = \"two\"\n{all}\n[[host]]\nname = \"h\"\ncount = 2\n{CPU}{GPUS}[[host.switch]]\nname = \"plx\"\n")
        + "[[host.nic]]\nname = \"n\"\n"
        + &link("host.link", "pcie", "gpu*", "plx", "16GB/s", pcie)
        + &link("host.link", "pcie", "cpu", "plx", "16GB/s", pcie)
        + &link("host.link", "pcie", "cpu", "n", "16GB/s", "")
        + &link("link", "ethernet", "h0.n", "h1.n", "1GB/s", ethernet)
}

fn transport(text: &str, from: &str, to: &str) -> RouteTransport {
    let cluster = Cluster::parse("two.toml", text).unwrap();
    let [from, to] = [from, to].map(|name| device_named(&cluster, name).id);
    cluster.route(from, to).unwrap().transport
}

fn rate(text: &str, from: &str, to: &str) -> f64 {
    transport(text, from, to).rate.bytes_per_s()
}

#[test]
fn headers_by_hand() {
    for (keys, share) in [
        ("", 1448.0 / 1538.0),
        ("mtu = 9000", 8948.0 / 9038.0),
        ("mtu = 53", 1.0 / 91.0),
        ("protocol = \"roce\"", 4096.0 / 4178.0),
        ("protocol = \"roce\"\nmtu = 1024", 1024.0 / 1106.0),
        ("protocol = \"infiniband\"\nmtu = 2048", 2048.0 / 2074.0),
        ("protocol = \"nvlink\"", 256.0 / 272.0),
        ("protocol = \"gemini\"", 64.0 / 96.0),
        ("protocol = \"plain\"", 1.0),
        ("efficiency = 0.5", 0.5),
        ("efficiency = 1", 1.0),
    ] {
        let found = rate(&two("", "", keys), "h0.gpu0", "h1.gpu0");
        assert!((found / (1e9 * share) - 1.0).abs() < 1e-12, "{keys}: {found}");
    }
    for (keys, share) in [("", 256.0 / 280.0), ("mtu = 128", 128.0 / 152.0), ("protocol = \"plain\"", 1.0)] {
        let found = rate(&two("", keys, ""), "h0.gpu0", "h0.gpu1");
        assert!((found / (16e9 * share) - 1.0).abs() < 1e-12, "{keys}: {found}");
    }
    let plain = transport(&two("protocol = \"plain\"", "", ""), "h0.gpu0", "h1.gpu0");
    assert_eq!((plain.protocol.stack, plain.cap, plain.rate.bytes_per_s()), (Stack::Plain, None, 1e9));
}

#[test]
fn a_message_is_set_up_once_by_the_stack_with_the_longest_reach() {
    let text = two("", "send_overhead = \"9us\"\neager = \"1KiB\"", "");
    let far = transport(&text, "h0.gpu0", "h1.gpu0");
    assert_eq!((far.protocol.stack, far.protocol.send_overhead), (Stack::Tcp, Time::from_nanos(1_000)));
    assert_eq!(far.sender, far.receiver, "a cable is both ports");
    let near = transport(&text, "h0.gpu0", "h0.gpu1");
    assert_eq!((near.protocol.send_overhead, near.protocol.eager), (Time::from_nanos(9_000), Bytes(1 << 10)));
    assert_ne!(near.sender, near.receiver);
    // Two networks in a row: the more expensive of each figure.
    let (tcp, verbs) = (Stack::Tcp.defaults(), Stack::InfiniBand.defaults());
    let both = tcp.and(&verbs);
    assert_eq!((both.send_overhead, both.eager), (tcp.send_overhead, verbs.eager));
    assert_eq!((both.rendezvous, both.window), (Rendezvous::Stream, tcp.window));
}

#[test]
fn windows_and_copies_limit_a_single_transfer() {
    // Seven links of 1 us, there and back: 14,000 bytes a round trip of 14 us are 1 GB/s.
    let cable = |keys: &str| rate(&two("", "", keys), "h0.gpu0", "h1.gpu0");
    assert_eq!(cable("window = \"7000B\"\nefficiency = 1.0"), 7_000.0 / 14e-6);
    assert_eq!(cable("window = \"70000B\"\nefficiency = 1.0"), 1e9);
    assert_eq!(cable("window = \"unlimited\"\nefficiency = 1.0"), 1e9);
    let bus =
        two("", "pageable_bandwidth = \"3GB/s\"\npeer_bandwidth = \"5GB/s\"\nefficiency = 1.0", "efficiency = 1.0");
    assert_eq!(rate(&bus, "h0.cpu", "h0.gpu0"), 3e9);
    assert_eq!(rate(&bus, "h0.gpu1", "h0.cpu"), 3e9);
    assert_eq!(rate(&bus, "h0.gpu0", "h0.gpu1"), 5e9);
    assert_eq!(rate(&bus, "h0.gpu0", "h1.gpu1"), 1e9);
    assert_eq!(transport(&bus, "h0.gpu0", "h1.cpu").cap.unwrap().bytes_per_s(), 5e9);
    // From CPU to CPU nothing is copied to or from a GPU; the TCP window is left.
    assert_eq!(transport(&bus, "h0.cpu", "h1.cpu").cap.unwrap().bytes_per_s(), f64::from(4 << 20) / 6e-6);
}

#[test]
fn wrong_figures_are_refused_with_their_cure() {
    for (keys, message) in [
        ("protocol = \"ipx\"", "is not a protocol: write plain, tcp, roce"),
        ("efficiency = 1.5", "must be above 0 and at most 1"),
        ("efficiency = nan", "must be above 0 and at most 1"),
        ("efficiency = 0", "must be above 0 and at most 1"),
        ("mtu = 52", "leaves no payload beside the headers of tcp"),
        ("mtu = 1500\nefficiency = 0.5", "and efficiency are both given"),
        ("send_overhead = \"-1us\"", "must be from 0"),
        ("eager = \"lots\"", "does not start with a number"),
        ("rendezvous = \"romantic\"", "is not a rendezvous: write none, read, write or stream"),
        ("window = \"0B\"", "must be positive"),
        ("slow_start = \"0B\"", "must be positive"),
        ("burst = \"1MB\"", "needs burst_bandwidth"),
        ("burst_at_once = \"1kB\"", "needs burst beside it"),
        ("burst = \"1MB\"\nburst_bandwidth = \"1kB/s\"", "must be above the link's bandwidth"),
        ("burst = \"1MB\"\nburst_bandwidth = \"9TB/s\"\nburst_at_once = \"2MB\"", "must be at most burst"),
        ("incast_senders = 4", "needs incast_goodput"),
        ("incast_goodput = 0.5", "needs incast_senders"),
        ("peer_bandwidth = \"0GB/s\"", "must be positive"),
        ("eagre = \"1KiB\"", "did you mean eager"),
    ] {
        let error = Cluster::parse("two.toml", &two("", "", keys)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("two.toml:") && error.contains(message), "{keys}: {error}");
    }
    let error = Cluster::parse("two.toml", &two("protocol = \"tcp\"", "", "")).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("two.toml:2:") && error.contains("must be \"plain\" here"), "{error}");
}
