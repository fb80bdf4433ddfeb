// Muon's turn against what the real one allocated, freed and sent (tests/golden/muon, whose record.py says how).

#include "simulator/ops/newton_schulz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

namespace fsdp::simulator {
namespace {

struct Recorded {
  MuonMatrix matrix;
  TensorMesh mesh;
  std::string events;
};

std::vector<Recorded> read_recorded() {
  std::ifstream file("tests/golden/muon/steps.txt");
  EXPECT_TRUE(file.is_open());
  std::vector<Recorded> all;
  for (std::string line; std::getline(file, line);) {
    Recorded& recorded = all.emplace_back();
    std::istringstream numbers(line);
    numbers >> recorded.matrix.rows >> recorded.matrix.columns >> recorded.matrix.item >> recorded.mesh.dimensions >>
        recorded.mesh.sizes[0] >> recorded.mesh.sizes[1] >> recorded.mesh.per_node;
    std::getline(file, recorded.events);
  }
  return all;
}

std::vector<MuonEvent> events_of(const MuonUpdate& update) {
  std::vector<MuonEvent> events = update.making;
  events.insert(events.end(), update.changing.begin(), update.changing.end());
  events.push_back({.what = MuonEvent::What::Free, .tensor = update.update});
  return events;
}

/// As record.py writes them.
std::string text_of(const MuonUpdate& update, const TensorMesh& mesh) {
  std::string text;
  std::string sent;
  std::map<int, int> number_of;
  int number = 0;
  for (const MuonEvent& event : events_of(update)) {
    const auto dimension = static_cast<std::size_t>(event.dimension);
    if (event.what == MuonEvent::What::Alloc) {
      number_of[event.tensor] = number++;
      text += fmt::format("a{} ", event.bytes);
    } else if (event.what == MuonEvent::What::Free) {
      text += fmt::format("f{} ", number_of.at(event.tensor));
    } else if (event.collective == CollectiveKind::ReduceScatter) {
      sent += fmt::format("s{} ", event.bytes / mesh.sizes[dimension]);
    } else {
      const bool is_gather = event.collective == CollectiveKind::AllGather;
      const char letter = is_gather ? 'g' : event.collective == CollectiveKind::AllToAll ? 't' : 'r';
      sent += fmt::format("{}{} ", letter, event.bytes);
    }
  }
  text += sent;
  text.pop_back();
  return text;
}

constexpr LaunchLimits kH100 = {132, 2048};

TEST(NewtonSchulz, MatchesRealMuon) {
  const std::vector<Recorded> all = read_recorded();
  EXPECT_EQ(all.size(), 19U);
  for (const Recorded& recorded : all) {
    const MuonUpdate update = muon_update(recorded.matrix, recorded.mesh, kH100);
    EXPECT_EQ(text_of(update, recorded.mesh), recorded.events)
        << recorded.matrix.rows << " x " << recorded.matrix.columns << " over " << recorded.mesh.sizes[0] << " x "
        << recorded.mesh.sizes[1];
  }
}

// 8 x 16 on one rank. Gram and update: [8, 8] from 16 and from 8, then [8, 16] from 8.
TEST(NewtonSchulz, CountsTheProductsOfEachIteration) {
  const MuonUpdate update = muon_update({.rows = 8, .columns = 16, .ns_steps = 2}, {}, kH100);
  EXPECT_EQ(update.flops, 2 * (2 * 8 * 8 * 16 + 2 * 8 * 8 * 8 + 2 * 8 * 16 * 8));
}

// Without Nesterov's momentum in bfloat16, X is the momentum itself, which stays.
TEST(NewtonSchulz, UsesTheMomentumIfNothingIsCopied) {
  const MuonUpdate update =
      muon_update({.rows = 8, .columns = 16, .item = 2, .nesterov = false, .ns_steps = 1}, {}, kH100);
  EXPECT_TRUE(update.making.empty());
  // norm, clamped, X X^T, H, and the update: the momentum is never freed.
  EXPECT_EQ(text_of(update, {}), "a2 a2 f0 f1 a128 a128 a256 f2 f3 f4");
}

TEST(NewtonSchulz, AllocatesAsOneRankDoesIfNothingIsSharded) {
  const MuonMatrix matrix{.rows = 256, .columns = 1024};
  const MuonUpdate alone = muon_update(matrix, {}, kH100);
  const MuonUpdate copied = muon_update(matrix, {.dimensions = 2, .sizes = {4, 1}, .per_node = 4}, kH100);
  EXPECT_EQ(alone.making, copied.making);
  EXPECT_EQ(alone.changing, copied.changing);
}

}  // namespace
}  // namespace fsdp::simulator
