// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace {

[[noreturn]] void Bad(const std::string& what) {
  std::fprintf(stderr, "driver: %s\n", what.c_str());
  std::exit(2);
}

}  // namespace

Job ReadJob(const std::string& path) {
  std::ifstream file(path);
  if (!file) Bad("cannot read " + path);
  Job job;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    std::string word;
    words >> key;
    if (key == "dtype") {
      words >> job.dtype;
    } else if (key == "plan") {
      words >> job.plan.hidden >> job.plan.block >> job.plan.factor >> job.plan.pow2;
    } else if (key == "tokens") {
      words >> job.tokens;
    } else if (key == "slices") {
      words >> job.slices;
    } else if (key == "direction") {
      words >> word;
      job.direction = word == "rotate" ? eagle3_quarot::Direction::kRotate : eagle3_quarot::Direction::kUnrotate;
    } else if (key == "norm") {
      words >> word;
      job.norm = word == "slice"    ? eagle3_quarot::Norm::kSlice
                 : word == "concat" ? eagle3_quarot::Norm::kConcat
                                    : eagle3_quarot::Norm::kNone;
    } else if (key == "epsilon") {
      words >> job.epsilon;
    } else if (key == "cores") {
      words >> job.cores;
    } else if (key == "seed") {
      words >> job.seed;
    } else if (key == "vocab") {
      words >> job.vocab_start >> job.vocab_end;
    } else if (key == "id_bytes") {
      words >> job.id_bytes;
    } else if (key == "channel_is_float") {
      words >> job.channel_is_float;
    } else if (key == "tensor") {
      std::string name;
      words >> name >> job.tensors[name];
    } else if (key == "source") {
      Source source;
      words >> source.tensor >> source.offset >> source.stride;
      job.sources.push_back(source);
    } else if (key == "out") {
      words >> job.out;
    } else if (key == "scale") {
      words >> job.scale;
    } else if (key == "channel") {
      Source channel{};
      words >> channel.tensor >> channel.offset;
      job.channels.push_back(channel);
    } else if (key == "ids") {
      words >> job.ids;
    } else if (key == "factor") {
      words >> job.factor;
    } else if (key == "dump") {
      words >> job.dump;
    } else {
      Bad("unknown key '" + key + "' in " + path);
    }
    if (words.fail()) Bad("bad line '" + line + "' in " + path);
  }
  return job;
}
