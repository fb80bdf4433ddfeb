#pragma once

// torch's ProcessGroupGloo.hpp includes Gloo's headers, which no wheel brings, for names that it only passes on. These
// files declare those names and no more; nothing of them is called here.
