// The judge: plays the cases of a text file with SimGrid's S4U and prints when each flow and each rank is done.
//
// It knows nothing of lockstep but the text, so that the two have only the question in common. Each case runs in a child
// process of its own, because SimGrid has one engine per process. TCP is switched off: transfers share links max-min fair,
// except that SimGrid weights them by the inverse of their route's latency. A case therefore says who sees to latency:
// `latency native` leaves it to SimGrid's links (fair where all routes have the same), `latency paid` makes the links
// latency-free, and here each message waits for its route's latency before its bytes flow.
//
//   case NAME
//   latency native|paid
//   eager 0|1                       whether messages set off when posted, or when their receive is, too
//   hosts N                         0 … N-1; on each, `compute` takes its seconds
//   link BANDWIDTH LATENCY          numbered from 0; one direction of a wire, or both where they share
//   route FROM TO LINK …
//   flow START FROM TO BYTES CAP    a transfer without messages; CAP 0: none
//   lane RANK HOST                  what follows is done by this rank, in order:
//   send TO_RANK BYTES              posted, not waited for
//   recv FROM_RANK
//   compute SECONDS
//   end
//
// Answer, for each case: `case NAME`, `flow NUMBER SECONDS` and `rank RANK SECONDS`.

#include <simgrid/s4u.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Link {
  double bandwidth, latency;
};
struct Route {
  int from, to;
  std::vector<int> links;
};
struct Flow {
  double start;
  int from, to;
  double bytes, cap;
};
struct Step {
  enum Kind { Send, Recv, Compute } kind;
  int peer;
  double amount;
};
struct Lane {
  int host = -1;
  std::vector<Step> steps;
};
struct Case {
  std::string name;
  bool paid = false, eager = false;
  int hosts = 0;
  std::vector<Link> links;
  std::vector<Route> routes;
  std::vector<Flow> flows;
  std::map<int, Lane> lanes;
};

[[noreturn]] static void refuse(const std::string& what)
{
  std::cerr << "judge: " << what << std::endl;
  std::exit(2);
}

// What messages from one rank to another need when their latency is paid here.
struct Pair {
  sg4::SemaphorePtr asked = sg4::Semaphore::create(0), arrived = sg4::Semaphore::create(0);
  sg4::SemaphorePtr before = sg4::Semaphore::create(1); // released when the message posted last is through
};

struct Play {
  const Case& question;
  std::vector<sg4::Host*> hosts;
  std::map<std::pair<int, int>, double> latency;
  std::map<std::pair<int, int>, Pair> pairs;
  std::map<int, double> ends;

  explicit Play(const Case& question) : question(question) {}

  void build()
  {
    auto* zone = sg4::create_full_zone("platform");
    for (int host = 0; host < question.hosts; host++)
      hosts.push_back(zone->create_host("host" + std::to_string(host), 1.0));
    std::vector<sg4::Link*> links;
    for (const Link& link : question.links)
      links.push_back(zone->create_link("link" + std::to_string(links.size()), link.bandwidth)
                          ->set_latency(question.paid ? 0.0 : link.latency)
                          ->set_sharing_policy(sg4::Link::SharingPolicy::SHARED));
    for (const Route& route : question.routes) {
      std::vector<sg4::LinkInRoute> crossed;
      for (int link : route.links) {
        crossed.emplace_back(links.at(link));
        latency[{route.from, route.to}] += question.links.at(link).latency;
      }
      zone->add_route(hosts.at(route.from)->get_netpoint(), hosts.at(route.to)->get_netpoint(), nullptr, nullptr,
                      crossed, false);
    }
    zone->seal();
  }

  int host_of(int rank) const { return question.lanes.at(rank).host; }

  static sg4::Mailbox* mailbox(int from, int to)
  {
    return sg4::Mailbox::by_name(std::to_string(from) + ">" + std::to_string(to));
  }

  // One rank with SimGrid's own messages and latencies.
  void native(int rank, const Lane& lane)
  {
    static char payload;
    std::vector<sg4::CommPtr> sent;
    for (const Step& step : lane.steps) {
      if (step.kind == Step::Compute)
        sg4::this_actor::execute(step.amount);
      else if (step.kind == Step::Recv)
        mailbox(step.peer, rank)->get<char>();
      else if (question.eager)
        mailbox(rank, step.peer)->put_init(&payload, step.amount)->detach();
      else
        sent.push_back(mailbox(rank, step.peer)->put_async(&payload, step.amount));
    }
    sg4::Comm::wait_all(sent);
    ends[rank] = sg4::Engine::get_clock();
  }

  // One rank whose messages wait for their latency here; those of a pair of ranks flow one after the other.
  void paid(int rank, const Lane& lane)
  {
    auto consumed = sg4::Semaphore::create(0);
    int posted    = 0;
    for (const Step& step : lane.steps) {
      if (step.kind == Step::Compute) {
        sg4::this_actor::execute(step.amount);
      } else if (step.kind == Step::Recv) {
        Pair& pair = pairs[{step.peer, rank}];
        pair.asked->release();
        pair.arrived->acquire();
      } else {
        posted++;
        Pair& pair = pairs[{rank, step.peer}];
        int from = host_of(rank), to = host_of(step.peer);
        double wait = latency.at({from, to}), bytes = step.amount;
        // A place in the line is taken when posting: sleeps that end together end in any order.
        auto before = pair.before, through = sg4::Semaphore::create(0);
        pair.before = through;
        sg4::Actor::create("message", hosts[from], [this, &pair, before, through, consumed, from, to, wait, bytes] {
          if (not question.eager)
            pair.asked->acquire();
          sg4::this_actor::sleep_for(wait);
          before->acquire();
          sg4::Comm::sendto(hosts[from], hosts[to], static_cast<uint64_t>(bytes));
          through->release();
          pair.arrived->release();
          consumed->release();
        });
      }
    }
    for (int message = 0; message < posted && not question.eager; message++)
      consumed->acquire();
    ends[rank] = sg4::Engine::get_clock();
  }

  void run()
  {
    build();
    for (const auto& entry : question.lanes) {
      const int rank   = entry.first;
      const Lane& lane = entry.second;
      auto actor       = sg4::Actor::create("rank" + std::to_string(rank), hosts.at(lane.host), [this, rank, &lane] {
        if (question.paid)
          paid(rank, lane);
        else
          native(rank, lane);
      });
      // A mailbox with a receiver starts transfers when they are posted.
      if (question.eager && not question.paid)
        for (const Step& step : lane.steps)
          if (step.kind == Step::Recv)
            mailbox(step.peer, rank)->set_receiver(actor);
    }
    std::vector<double> finished(question.flows.size(), -1);
    for (size_t number = 0; number < question.flows.size(); number++) {
      const Flow& flow = question.flows[number];
      double start     = flow.start + (question.paid ? latency.at({flow.from, flow.to}) : 0);
      auto* mailbox    = sg4::Mailbox::by_name("flow" + std::to_string(number));
      sg4::Actor::create("sender", hosts.at(flow.from), [&flow, mailbox, start] {
        static char payload;
        sg4::this_actor::sleep_until(start);
        auto comm = mailbox->put_init(&payload, static_cast<uint64_t>(flow.bytes));
        if (flow.cap > 0)
          comm->set_rate(flow.cap);
        comm->wait();
      });
      sg4::Actor::create("receiver", hosts.at(flow.to), [&finished, mailbox, number] {
        mailbox->get<char>();
        finished[number] = sg4::Engine::get_clock();
      });
    }
    sg4::Engine::get_instance()->run();
    std::printf("case %s\n", question.name.c_str());
    for (size_t number = 0; number < finished.size(); number++)
      std::printf("flow %zu %.17g\n", number, finished[number]);
    for (const auto& entry : question.lanes) {
      if (ends.find(entry.first) == ends.end())
        refuse("case " + question.name + ": rank " + std::to_string(entry.first) + " never ends");
      std::printf("rank %d %.17g\n", entry.first, ends[entry.first]);
    }
    std::fflush(stdout);
  }
};

static std::vector<Case> read(const char* path)
{
  std::ifstream file(path);
  if (not file)
    refuse(std::string(path) + ": cannot be read");
  std::vector<Case> cases;
  Lane* lane = nullptr;
  std::string line, word;
  for (int number = 1; std::getline(file, line); number++) {
    std::istringstream words(line);
    if (not(words >> word))
      continue;
    if (word == "case") {
      cases.emplace_back();
      words >> cases.back().name;
      continue;
    }
    if (cases.empty())
      refuse(std::to_string(number) + ": stands before any case");
    Case& now = cases.back();
    if (word == "latency") {
      words >> word;
      now.paid = word == "paid";
    } else if (word == "eager") {
      words >> now.eager;
    } else if (word == "hosts") {
      words >> now.hosts;
    } else if (word == "link") {
      Link link;
      words >> link.bandwidth >> link.latency;
      now.links.push_back(link);
    } else if (word == "route") {
      Route route;
      words >> route.from >> route.to;
      for (int link; words >> link;)
        route.links.push_back(link);
      words.clear();
      now.routes.push_back(route);
    } else if (word == "flow") {
      Flow flow;
      words >> flow.start >> flow.from >> flow.to >> flow.bytes >> flow.cap;
      now.flows.push_back(flow);
    } else if (word == "lane") {
      int rank;
      words >> rank;
      lane = &now.lanes[rank];
      words >> lane->host;
    } else if (lane && (word == "send" || word == "recv" || word == "compute")) {
      Step step{word == "send" ? Step::Send : word == "recv" ? Step::Recv : Step::Compute, -1, 0};
      if (step.kind != Step::Compute)
        words >> step.peer;
      if (step.kind != Step::Recv)
        words >> step.amount;
      lane->steps.push_back(step);
    } else if (word != "end") {
      refuse(std::to_string(number) + ": unknown word " + word);
    }
    if (words.fail())
      refuse(std::to_string(number) + ": not a line of this kind: " + line);
  }
  return cases;
}

int main(int argc, char* argv[])
{
  if (argc != 2)
    refuse("usage: judge FILE");
  for (const Case& question : read(argv[1])) {
    pid_t child = fork();
    if (child < 0)
      refuse("cannot fork");
    if (child == 0) {
      std::vector<std::string> words{"judge",
                                     "--cfg=network/model:CM02",
                                     "--cfg=network/TCP-gamma:0",
                                     "--cfg=network/bandwidth-factor:1",
                                     "--cfg=network/latency-factor:1",
                                     "--cfg=network/weight-S:0",
                                     "--cfg=network/crosstraffic:0",
                                     // The lazy solver overlooks links when several latencies end at one instant.
                                     "--cfg=network/optim:Full",
                                     "--cfg=surf/precision:1e-12",
                                     "--cfg=maxmin/precision:1e-9",
                                     "--cfg=contexts/stack-size:64",
                                     "--log=root.thres:error"};
      std::vector<char*> arguments;
      for (std::string& text : words)
        arguments.push_back(&text[0]);
      int count = static_cast<int>(arguments.size());
      arguments.push_back(nullptr);
      sg4::Engine engine(&count, arguments.data());
      Play(question).run();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (not WIFEXITED(status) || WEXITSTATUS(status) != 0)
      refuse("case " + question.name + ": SimGrid gave up, status " + std::to_string(status));
  }
  return 0;
}
