#include "decode/specials.h"

#include "launch/launch.h"

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
  WorkspaceHigh,
  WorkspaceLow,
  ClusterNctaX,
  ClusterNctaY,
  ClusterNctaZ,
  ClusterNctaRank,
  NclusterX,
  NclusterY,
  NclusterZ,
  ExplicitCluster,
  FirstOfBlock,  // from here on they differ from block to block
  ClusterCtaX = FirstOfBlock,
  ClusterCtaY,
  ClusterCtaZ,
  ClusterCtaRank,
  ClusterX,
  ClusterY,
  ClusterZ,
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
    {"%cluster_ctaid.x", ClusterCtaX},
    {"%cluster_ctaid.y", ClusterCtaY},
    {"%cluster_ctaid.z", ClusterCtaZ},
    {"%cluster_ctarank", ClusterCtaRank},
    {"%cluster_nctaid.x", ClusterNctaX},
    {"%cluster_nctaid.y", ClusterNctaY},
    {"%cluster_nctaid.z", ClusterNctaZ},
    {"%cluster_nctarank", ClusterNctaRank},
    {"%clusterid.x", ClusterX},
    {"%clusterid.y", ClusterY},
    {"%clusterid.z", ClusterZ},
    {"%nclusterid.x", NclusterX},
    {"%nclusterid.y", NclusterY},
    {"%nclusterid.z", NclusterZ},
    {"%is_explicit_cluster", ExplicitCluster},
    // The driver's address of a cooperative grid's workspace, where cooperative_groups looks for it.
    {"%envreg1", WorkspaceHigh},
    {"%envreg2", WorkspaceLow},
};
}  // namespace

int special_named(string_view name) {
  auto it = names.find(name);
  if (it != names.end()) return it->second;
  return name.substr(0, 7) == "%envreg" ? Zero : -1;
}

bool special_per_block(int which) {
  return (which >= CtaX && which <= CtaZ) || which == Smid || which >= FirstOfBlock;
}

bool special_is_workspace(int which) { return which == WorkspaceLow; }

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
    case WorkspaceHigh:
      return l.workspace >> 32;
    case WorkspaceLow:
      return (u32)l.workspace;
    case ExplicitCluster:
      return l.clustered;
    case ClusterNctaX:
    case ClusterNctaY:
    case ClusterNctaZ:
      return l.cluster[which - ClusterNctaX];
    case ClusterNctaRank:
      return l.cluster[0] * l.cluster[1] * l.cluster[2];
    case NclusterX:
    case NclusterY:
    case NclusterZ:
      return l.grid[which - NclusterX] / l.cluster[which - NclusterX];
    case ClusterCtaX:
    case ClusterCtaY:
    case ClusterCtaZ:
      return b.index[which - ClusterCtaX] % l.cluster[which - ClusterCtaX];
    case ClusterCtaRank:
      return b.index[0] % l.cluster[0] +
             l.cluster[0] * (b.index[1] % l.cluster[1] + l.cluster[1] * (b.index[2] % l.cluster[2]));
    case ClusterX:
    case ClusterY:
    case ClusterZ:
      return b.index[which - ClusterX] / l.cluster[which - ClusterX];
    default:
      return 0;
  }
}
}  // namespace kw
