// Runs SimGrid on the loads of benches/scale_bench.rs, on the same platforms: prints wall seconds, simulated seconds
// and peak memory as one line.
//
//   simgrid ring RANKS | even-ring RANKS | halving-doubling RANKS | tree RANKS | flows FLOWS
//
// SimGrid gets its best case: raw contexts, lazy updates, small stacks, routes only where messages are sent (a full
// zone's table for the tree), and one actor per rank. TCP is off, as in sim/tests/simgrid/judge.cpp.

#include <simgrid/s4u.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

static const double LINK = 1.25e9, LATENCY = 2.5e-6;
static const uint64_t ELEMENTS = 25 << 20; // 100 MiB of fp32

// As in scale_bench.rs (SplitMix64).
struct Random {
  uint64_t state;
  uint64_t next()
  {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
};

// A link's bandwidth: 1 % up or down by the host's number, in whole bytes per second.
static std::vector<double> jittered(uint32_t hosts)
{
  Random random{7};
  std::vector<double> bandwidths;
  for (uint32_t host = 0; host < hosts; host++)
    bandwidths.push_back(LINK * (990000 + random.below(20001)) / 1000000);
  return bandwidths;
}

// Host h on a switch by two links, one for each direction.
static std::vector<sg4::Host*> star(const std::vector<double>& bandwidths)
{
  auto* zone = sg4::create_star_zone("star");
  std::vector<sg4::Host*> hosts;
  for (size_t at = 0; at < bandwidths.size(); at++) {
    std::string name = std::to_string(at);
    auto* host       = zone->create_host("h" + name, 1.0);
    auto* up         = zone->create_link("u" + name, bandwidths[at])->set_latency(LATENCY);
    auto* down       = zone->create_link("d" + name, bandwidths[at])->set_latency(LATENCY);
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(up)}, false);
    zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {sg4::LinkInRoute(down)}, false);
    hosts.push_back(host);
  }
  zone->seal();
  return hosts;
}

// Leaves of 32 hosts under one core, trunks of half the hosts' bandwidth; rank r is on host order[r], and routes go from
// each rank to the next.
static std::vector<sg4::Host*> tree(uint32_t ranks, const std::vector<uint32_t>& order)
{
  const uint32_t per_leaf = 32;
  auto* zone              = sg4::create_full_zone("tree");
  auto wire               = [zone](const std::string& name, double bandwidth, double latency) {
    return sg4::LinkInRoute(zone->create_link(name, bandwidth)->set_latency(latency));
  };
  std::vector<sg4::Host*> hosts;
  std::vector<sg4::LinkInRoute> up, down, rise, fall;
  std::vector<double> bandwidths = jittered(ranks);
  for (uint32_t at = 0; at < ranks; at++) {
    hosts.push_back(zone->create_host("h" + std::to_string(at), 1.0));
    up.push_back(wire("u" + std::to_string(at), bandwidths[at], LATENCY));
    down.push_back(wire("d" + std::to_string(at), bandwidths[at], LATENCY));
  }
  for (uint32_t leaf = 0; leaf < ranks / per_leaf; leaf++) {
    rise.push_back(wire("r" + std::to_string(leaf), LINK * per_leaf / 2, 0));
    fall.push_back(wire("f" + std::to_string(leaf), LINK * per_leaf / 2, 0));
  }
  for (uint32_t rank = 0; rank < ranks; rank++) {
    uint32_t from = order[rank], to = order[(rank + 1) % ranks];
    std::vector<sg4::LinkInRoute> links{up[from]};
    if (from / per_leaf != to / per_leaf) {
      links.push_back(rise[from / per_leaf]);
      links.push_back(fall[to / per_leaf]);
    }
    links.push_back(down[to]);
    zone->add_route(hosts[from]->get_netpoint(), hosts[to]->get_netpoint(), nullptr, nullptr, links, false);
  }
  zone->seal();
  std::vector<sg4::Host*> placed;
  for (uint32_t rank = 0; rank < ranks; rank++)
    placed.push_back(hosts[order[rank]]);
  return placed;
}

// Part `index` of `parts` of the buffer; the first parts get the remainders.
static uint64_t shard(uint64_t parts, uint64_t index)
{
  return ELEMENTS / parts + (index < ELEMENTS % parts);
}

static char payload;

static void exchange(sg4::Mailbox* to, sg4::Mailbox* from, uint64_t elements)
{
  to->put_init(&payload, 4 * elements)->detach(); // starts it
  from->get<char>();
}

// 2(p - 1) rounds: rank r sends shard r - k in round k, first to be summed, then to be spread.
static void ring(const std::vector<sg4::Host*>& hosts)
{
  const uint32_t ranks = hosts.size();
  std::vector<sg4::Mailbox*> boxes; // boxes[r]: from r - 1 to r
  for (uint32_t rank = 0; rank < ranks; rank++)
    boxes.push_back(sg4::Mailbox::by_name(std::to_string(rank)));
  for (uint32_t rank = 0; rank < ranks; rank++)
    sg4::Actor::create("rank", hosts[rank], [boxes, rank, ranks] {
      for (uint32_t round = 0; round < 2 * (ranks - 1); round++)
        exchange(boxes[(rank + 1) % ranks], boxes[rank], shard(ranks, (rank + 2 * ranks - round) % ranks));
    });
}

// Powers of two: halves with the rank at distance 1, quarters at distance 2 and so on, and back.
static void halving_doubling(const std::vector<sg4::Host*>& hosts)
{
  const uint32_t ranks = hosts.size();
  for (uint32_t rank = 0; rank < ranks; rank++)
    sg4::Actor::create("rank", hosts[rank], [rank, ranks] {
      auto with = [rank](uint32_t distance, uint64_t elements) {
        uint32_t peer = rank ^ distance;
        auto name     = [](uint32_t from, uint32_t to) { return std::to_string(from) + ">" + std::to_string(to); };
        exchange(sg4::Mailbox::by_name(name(rank, peer)), sg4::Mailbox::by_name(name(peer, rank)), elements);
      };
      for (uint32_t distance = 1; distance < ranks; distance *= 2)
        with(distance, ELEMENTS / (2 * distance));
      for (uint32_t distance = ranks / 2; distance > 0; distance /= 2)
        with(distance, ELEMENTS / (2 * distance));
    });
}

// All flows start at once between random hosts.
static void flows(const std::vector<sg4::Host*>& hosts, uint32_t count)
{
  sg4::Actor::create("start", hosts[0], [hosts, count] {
    Random random{11};
    std::vector<sg4::CommPtr> comms;
    for (uint32_t flow = 0; flow < count; flow++) {
      uint64_t from = random.below(hosts.size());
      uint64_t to   = (from + 1 + random.below(hosts.size() - 1)) % hosts.size();
      comms.push_back(sg4::Comm::sendto_async(hosts[from], hosts[to], 1000000 + random.below(100000000)));
    }
    sg4::Comm::wait_all(comms);
  });
}

// Peak memory of this process in KiB.
static long peak_kib()
{
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.compare(0, 6, "VmHWM:") == 0)
      return std::strtol(line.c_str() + 6, nullptr, 10);
  return 0;
}

int main(int argc, char* argv[])
{
  if (argc < 3) {
    std::fprintf(stderr, "usage: simgrid ring|even-ring|halving-doubling|tree|flows COUNT\n");
    return 2;
  }
  const std::string load = argv[1];
  const uint32_t count   = std::atoi(argv[2]);
  auto began             = std::chrono::steady_clock::now();
  std::vector<std::string> words{"simgrid",
                                 "--cfg=network/model:CM02",
                                 "--cfg=network/TCP-gamma:0",
                                 "--cfg=network/crosstraffic:0",
                                 "--cfg=contexts/stack-size:32",
                                 "--cfg=contexts/guard-size:0",
                                 "--log=root.thres:error"};
  std::vector<char*> arguments;
  for (std::string& word : words)
    arguments.push_back(&word[0]);
  int words_count = arguments.size();
  arguments.push_back(nullptr);
  sg4::Engine engine(&words_count, arguments.data());

  if (load == "ring") {
    ring(star(jittered(count)));
  } else if (load == "even-ring") {
    ring(star(std::vector<double>(count, LINK)));
  } else if (load == "halving-doubling") {
    halving_doubling(star(std::vector<double>(count, LINK)));
  } else if (load == "flows") {
    flows(star(std::vector<double>(432, LINK)), count);
  } else {
    Random random{13};
    std::vector<uint32_t> order;
    for (uint32_t host = 0; host < count; host++)
      order.push_back(host);
    for (uint32_t place = count - 1; place > 0; place--)
      std::swap(order[place], order[random.below(place + 1)]);
    ring(tree(count, order));
  }
  engine.run();
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("simgrid,%s,%u,%.4f,%.9f,%ld\n", load.c_str(), count, wall, sg4::Engine::get_clock(), peak_kib());
  std::fflush(stdout);
  std::_Exit(0);
}
