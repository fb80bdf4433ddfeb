#pragma once

// torch's ProcessGroupGloo.hpp includes Gloo's headers, which no wheel contains, for names that it only passes on.
// These files declare only those names; nothing of them is called here.
