#include "specials.h"

#include "launch.h"

namespace kw {
namespace {
enum Which {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaX,
  CtaY,
  CtaZ,
  NctaX,
  NctaY,
  NctaZ,
  Lane,
  WarpId,
  Nwarp,
  MaskEq,
  MaskLe,
  MaskLt,
  MaskGe,
  MaskGt,
  Smid,
  Nsmid,
  Zero,
  One,
  DynamicShared,
  TotalShared,
};
const std::unordered_map<string_view, int> names = {
    {"%tid.x", TidX},
    {"%tid.y", TidY},
    {"%tid.z", TidZ},
    {"%ntid.x", NtidX},
    {"%ntid.y", NtidY},
    {"%ntid.z", NtidZ},
    {"%ctaid.x", CtaX},
    {"%ctaid.y", CtaY},
    {"%ctaid.z", CtaZ},
    {"%nctaid.x", NctaX},
    {"%nctaid.y", NctaY},
    {"%nctaid.z", NctaZ},
    {"%laneid", Lane},
    {"%warpid", WarpId},
    {"%nwarpid", Nwarp},
    {"%lanemask_eq", MaskEq},
    {"%lanemask_le", MaskLe},
    {"%lanemask_lt", MaskLt},
    {"%lanemask_ge", MaskGe},
    {"%lanemask_gt", MaskGt},
    {"%smid", Smid},
    {"%nsmid", Nsmid},
    {"%gridid", One},
    {"%dynamic_smem_size", DynamicShared},
    {"%total_smem_size", TotalShared},
    {"%aggr_smem_size", TotalShared},
    // Without clusters every block is a cluster of one.
    {"%cluster_ctaid.x", Zero},
    {"%cluster_ctaid.y", Zero},
    {"%cluster_ctaid.z", Zero},
    {"%cluster_ctarank", Zero},
    {"%cluster_nctaid.x", One},
    {"%cluster_nctaid.y", One},
    {"%cluster_nctaid.z", One},
    {"%cluster_nctarank", One},
    {"%clusterid.x", CtaX},
    {"%clusterid.y", CtaY},
    {"%clusterid.z", CtaZ},
    {"%nclusterid.x", NctaX},
    {"%nclusterid.y", NctaY},
    {"%nclusterid.z", NctaZ},
};
}  // namespace

int special_named(string_view name) {
  auto it = names.find(name);
  if (it != names.end()) return it->second;
  return name.substr(0, 7) == "%envreg" ? Zero : -1;
}

bool special_per_block(int which) { return (which >= CtaX && which <= CtaZ) || which == Smid; }

u64 special_value(const Launch& l, const Block& b, const Warp& w, int lane, int which) {
  u32 t = w.id * 32 + (u32)lane, one = 1u << lane;
  switch (which) {
    case TidX:
      return t % l.block[0];
    case TidY:
      return t / l.block[0] % l.block[1];
    case TidZ:
      return t / l.block[0] / l.block[1];
    case NtidX:
    case NtidY:
    case NtidZ:
      return l.block[which - NtidX];
    case CtaX:
    case CtaY:
    case CtaZ:
      return b.index[which - CtaX];
    case NctaX:
    case NctaY:
    case NctaZ:
      return l.grid[which - NctaX];
    case Lane:
      return (u64)lane;
    case WarpId:
      return w.id;
    case Nwarp:
      return (b.threads + 31) / 32;
    case MaskEq:
      return one;
    case MaskLe:
      return one | (one - 1);
    case MaskLt:
      return one - 1;
    case MaskGe:
      return (u32) ~(one - 1);
    case MaskGt:
      return (u32) ~(one | (one - 1));
    case Smid:
      return b.linear % 132;
    case Nsmid:
      return 132;
    case One:
      return 1;
    case DynamicShared:
      return l.shared_bytes - l.kernel->dynamic_offset;
    case TotalShared:
      return l.shared_bytes - l.kernel->shared_gaps;
    default:
      return 0;
  }
}
}  // namespace kw
