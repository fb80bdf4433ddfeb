#include "text/document.h"

#include <gtest/gtest.h>

namespace fsdp::text {
namespace {

const Document kDocument = {
    Entry{.label = "FITS", .lines = {"peak 3 of 4"}, .style = Style::Good},
    Table{.name = "moved",
          .columns = {{"kind", "kind"}, {"bytes", "payload_bytes", true}},
          .rows = {{"all_gather", cell(Bytes(1536))}, {"a, \"b\"", cell(Bytes(5))}}},
    Entry{.label = "curve", .lines = {"▁ █"}, .is_picture = true},
    Table{
        .name = "summary", .columns = {{"n", "n", true}}, .rows = {{cell(std::int64_t{7})}}, .only_for_scripts = true},
};

TEST(Document, LabelsStandInAColumnAndNumbersAreAlignedToTheRight) {
  EXPECT_EQ(to_text(kDocument, Terminal{}),
            "FITS   peak 3 of 4\n"
            "moved  kind           bytes\n"
            "       all_gather  1.50 KiB\n"
            "       a, \"b\"           5 B\n"
            "curve  ▁ █\n");
}

TEST(Document, CsvHasTheTablesWithExactValues) {
  EXPECT_EQ(to_csv(kDocument),
            "table,kind,payload_bytes\n"
            "moved,all_gather,1536\n"
            "moved,\"a, \"\"b\"\"\",5\n"
            "\n"
            "table,n\n"
            "summary,7\n");
}

TEST(Document, MarkdownLeavesPicturesOutAndEscapesItsOwnSigns) {
  EXPECT_EQ(to_markdown(kDocument),
            "**FITS** peak 3 of 4\n\n"
            "**moved**\n\n"
            "| kind | bytes |\n| --- | ---: |\n| all\\_gather | 1.50 KiB |\n| a, \"b\" | 5 B |\n");
}

TEST(Document, ATableTooWideForATerminalWrapsItsTextAndIsWholeInAPipe) {
  const Document wide = {Table{.name = "next",
                               .columns = {{"what", "what"}, {"step", "step", true}},
                               .rows = {{"keep the states of the optimizer in eight bits", cell(Seconds{1})}}}};
  EXPECT_EQ(to_text(wide, Terminal{.is_terminal = true, .width = 40}),
            "next  what                          step\n"
            "      keep the states of the      1.00 s\n"
            "      optimizer in eight bits\n");
  EXPECT_EQ(to_text(wide, Terminal{.is_terminal = false, .width = 40}),
            "next  what                                              step\n"
            "      keep the states of the optimizer in eight bits  1.00 s\n");
}

TEST(Document, LessIsGreenAndMoreIsRed) {
  EXPECT_EQ(signed_cell(Bytes(-2048)).text, "-2.00 KiB");
  EXPECT_EQ(signed_cell(Bytes(-2048)).style, Style::Good);
  EXPECT_EQ(signed_cell(Seconds{0.5}).text, "+500 ms");
  EXPECT_EQ(signed_cell(Seconds{0.5}).style, Style::Bad);
}

TEST(Terminal, TheFlagWinsThenNoColorThenForceThenTheTerminalItself) {
  const TerminalEnvironment nothing;
  const TerminalEnvironment refused{.no_color = "1", .clicolor_force = "1"};
  const TerminalEnvironment forced{.force_color = "1"};
  const auto colored = [](bool is_terminal, ColorMode mode, const TerminalEnvironment& environment) {
    return terminal_of(is_terminal, 80, mode, environment).color;
  };
  EXPECT_TRUE(colored(false, ColorMode::Always, refused));
  EXPECT_FALSE(colored(true, ColorMode::Never, forced));
  EXPECT_FALSE(colored(true, ColorMode::Auto, refused));
  EXPECT_TRUE(colored(false, ColorMode::Auto, forced));
  EXPECT_TRUE(colored(true, ColorMode::Auto, nothing));
  EXPECT_FALSE(colored(false, ColorMode::Auto, nothing));
  EXPECT_FALSE(colored(true, ColorMode::Auto, {.term = "dumb"}));
}

TEST(Terminal, TheWidthIsThatOfTheTerminalElseColumnsElse80) {
  EXPECT_EQ(terminal_of(true, 120, ColorMode::Auto, {.columns = "60"}).width, 120);
  EXPECT_EQ(terminal_of(false, std::nullopt, ColorMode::Auto, {.columns = "60"}).width, 60);
  for (const char* columns : {"", "0", "-5", "many", "99999999999"}) {
    EXPECT_EQ(terminal_of(false, std::nullopt, ColorMode::Auto, {.columns = columns}).width, 80) << columns;
  }
}

TEST(Terminal, WideCombiningAndEscapedCharactersHaveTheirWidth) {
  EXPECT_EQ(display_width("aé█·"), 4);
  EXPECT_EQ(display_width("漢字"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("\x1b[1;32mFITS\x1b[0m"), 4);
  EXPECT_EQ(display_width("\xff\xfe"), 2);
}

TEST(Terminal, WrappingKeepsEveryWord) {
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("incomprehensible", 5), std::vector<std::string>{"incomprehensible"});
  EXPECT_EQ(wrap("", 5), std::vector<std::string>{""});
}

}  // namespace
}  // namespace fsdp::text
