// SPDX-License-Identifier: Apache-2.0
//
// print_choice: one line per request "hidden block factor pow2 tokens slices element_bytes norm
// channel cores" on standard input: why the kernel refuses the plan (or "takes it"), the cut of
// the launch, the modelled times and the chosen path.
#include <iostream>
#include <sstream>
#include <string>

#include "path_choice.h"

int main() {
  using namespace eagle3_quarot;  // NOLINT: the whole file is about it
  std::string line;
  while (std::getline(std::cin, line)) {
    RotationPlan plan{};
    RowShape shape{};
    uint32_t norm = 0;
    uint32_t channel = 0;
    uint32_t cores = 0;
    std::istringstream(line) >> plan.hidden >> plan.block >> plan.factor >> plan.pow2 >> shape.tokens >>
        shape.slices >> shape.element_bytes >> norm >> channel >> cores;
    shape.norm = static_cast<Norm>(norm);
    shape.channel = channel != 0;
    const std::string refusal = VectorKernelRefusal(plan, shape);
    const PathCost cost = ModelPathCost(plan, shape, cores);
    const char* const names[] = {"vector", "two", "one"};
    RowTiling tiling{};
    uint32_t bytes = 0;
    if (refusal.empty()) {
      tiling = TileRows(plan, shape, cores);
      bytes = UnifiedBufferBytes(plan, shape, tiling.span, tiling.buffers);
    }
    std::cout << (refusal.empty() ? "takes it" : refusal) << '\t' << tiling.span << '\t' << tiling.buffers << '\t'
              << tiling.cores << '\t' << bytes << '\t' << cost.vector_us << '\t' << cost.two_matmuls_us << '\t'
              << cost.one_matmul_us << '\t' << names[static_cast<int>(ChoosePath(plan, shape, cores))] << '\n';
  }
  return 0;
}
