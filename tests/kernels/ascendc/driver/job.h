// SPDX-License-Identifier: Apache-2.0
//
// A launch described by a text file: one "key value..." pair per line, tensors as raw files.
//
//   dtype bf16|f16|f32          tokens N            slices N        plan hidden block factor pow2
//   direction unrotate|rotate   norm none|slice|concat              epsilon X
//   cores N                     seed N              vocab start end     id_bytes 4|8
//   channel_is_float 0|1
//   tensor name path            bytes of a tensor
//   source name offset stride   a row source inside a tensor (elements)
//   out name                    the output, a tensor of its own or a source (in place)
//   scale|ids|factor name
//   channel name offset         the multiplier of the next slice
//   dump path                   where the output tensor goes
#ifndef DRIVER_JOB_H_
#define DRIVER_JOB_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "row_args.h"

struct Source {
  std::string tensor;
  uint64_t offset;
  uint64_t stride;
};

struct Job {
  std::string dtype;
  eagle3_quarot::RotationPlan plan{};
  uint32_t tokens = 0;
  uint32_t slices = 0;
  eagle3_quarot::Direction direction = eagle3_quarot::Direction::kUnrotate;
  eagle3_quarot::Norm norm = eagle3_quarot::Norm::kNone;
  float epsilon = 0.0f;
  uint32_t cores = 1;
  uint32_t seed = 0;
  int64_t vocab_start = 0;
  int64_t vocab_end = 0;
  uint32_t id_bytes = 8;
  uint32_t channel_is_float = 1;
  std::map<std::string, std::string> tensors;
  std::vector<Source> sources;
  std::vector<Source> channels;  // stride unused
  std::string out, scale, ids, factor, dump;

  uint32_t ElementBytes() const { return dtype == "f32" ? 4 : 2; }
};

Job ReadJob(const std::string& path);

#endif  // DRIVER_JOB_H_
