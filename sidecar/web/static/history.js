// The history of a group: samples of the sidecar, with a byte of load and an owner for each partition.
// The scale is that of sidecar/web/sample.py: a load of `FULL` is a consumer's capacity.

const STEPS_PER_DOUBLING = 16;
const FULL = 200;
export const UNKNOWN = 255;
export const NO_OWNER = 0xffff;
const KEPT_SECONDS = 3600;
const MAX_ROUNDING = 0.025; // of a load, relative

export const ratioOf = (load) => (load === 0 ? 0 : 2 ** ((load - FULL) / STEPS_PER_DOUBLING));

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const EMPTY_LOADS = new Uint8Array(0);
const EMPTY_OWNERS = new Uint16Array(0);

export class GroupHistory {
  constructor(snapshot) {
    this.group = snapshot.group;
    this.interval = snapshot.interval;
    this.moveCost = snapshot.move_cost;
    this.settings = snapshot.settings; // those that texts name
    this.partitions = snapshot.partitions.slice();
    this.consumers = snapshot.consumers.slice();
    this.samples = [];
    for (const raw of snapshot.samples) this.#add(raw);
  }

  get last() {
    return this.samples[this.samples.length - 1];
  }

  append(raw) {
    this.partitions.push(...raw.partitions);
    this.consumers.push(...raw.consumers);
    this.#add(raw);
    const oldest = raw.t - KEPT_SECONDS;
    let gone = 0;
    while (this.samples[gone].until < oldest) gone += 1;
    this.samples.splice(0, gone);
  }

  #add(raw) {
    const before = this.last;
    raw.loads = raw.loads ? bytesOf(raw.loads) : EMPTY_LOADS;
    if (raw.owners) raw.owners = new Uint16Array(bytesOf(raw.owners).buffer);
    else raw.owners = raw.loads.length && before ? before.owners : EMPTY_OWNERS;
    this.samples.push(raw);
  }

  label(partition) {
    const [topic, number] = this.partitions[partition];
    return `${topic}-${number}`;
  }

  // The partitions that changed their owner between the sample before `index` and this one.
  moves(index) {
    const now = this.samples[index].owners;
    const before = index > 0 ? this.samples[index - 1].owners : now;
    if (now === before) return [];
    const moved = [];
    const known = Math.min(now.length, before.length);
    for (let p = 0; p < known; p += 1) {
      if (now[p] !== before[p] && now[p] !== NO_OWNER) moved.push({ partition: p, source: before[p], target: now[p] });
    }
    return moved;
  }

  // Why a partition moved: the reason that the newest decision up to `index` gives for it.
  reason(index, partition) {
    const [topic, number] = this.partitions[partition];
    for (let i = index; i >= 0; i -= 1) {
      const found = this.samples[i].moves.find((m) => m.topic === topic && m.partition === number);
      if (found) return found.reason || "expected by the plan";
      if (i < index && this.samples[i].moves.length) break;
    }
    const change = this.decisionAt(index);
    return change ? `${change.action}: ${change.reasons.join("; ")}` : "a rebalance of the group";
  }

  // The rebalances up to `index`: moves of iterations in a row, as members hand over, are one, unless another
  // decision places partitions in between. `planned` is
  // the sample of the decision that placed the partitions, undefined without one, as when a consumer leaves.
  rebalances(index) {
    const found = [];
    let planned;
    for (let i = 0; i <= index; i += 1) {
      const sample = this.samples[i];
      const last = found[found.length - 1];
      if (sample.moved && last?.to === i - 1 && !planned) Object.assign(last, { to: i, count: last.count + sample.moved, rate: last.rate + sample.moved_rate });
      else if (sample.moved) {
        found.push({ from: i, to: i, t: sample.t, capacity: sample.capacity, count: sample.moved, rate: sample.moved_rate, planned });
        planned = undefined;
      }
      if (sample.metrics.planned_fill !== undefined) planned = sample; // its moves are seen from the next one on
    }
    return found;
  }

  lastRebalance(index) {
    return this.rebalances(index).pop() ?? null;
  }

  // Handovers from a sample on until the moves after another one: a pause is reported with the first commit.
  handovers(from = 0, to = this.samples.length - 1) {
    let end = to + 1;
    while (end < this.samples.length && !this.samples[end].moved) end += 1;
    return this.samples.slice(from, end).flatMap((s, i) =>
      (s.handovers ?? []).map(([topic, partition, seconds]) => ({ t: s.t, index: from + i, topic, partition, seconds })));
  }

  pauses(from, to) {
    return this.handovers(from, to).map((one) => one.seconds).sort((a, b) => a - b);
  }

  // From which consumer to which one a handover went, as "a → b"; empty if its move is not in the history.
  route({ index, topic, partition }) {
    for (let i = index; i >= 0; i -= 1) {
      if (!this.samples[i].moved) continue;
      const move = this.moves(i).find((one) => this.partitions[one.partition][0] === topic && this.partitions[one.partition][1] === partition);
      if (move) return `${this.consumer(move.source)} → ${this.consumer(move.target)}`;
    }
    return "";
  }

  // What one consumer fewer and one more would have cost at a sample; null where that was not computed.
  alternatives(sample) {
    return this.samples.find((one) => one.alternatives && one.alternatives.t === sample.t)?.alternatives.rows ?? null;
  }

  lastAlternatives(index) {
    for (let i = index; i >= 0; i -= 1) if (this.samples[i].alternatives?.rows.length) return this.samples[i].alternatives;
    return null;
  }

  decisionAt(index) {
    for (let i = index; i >= 0; i -= 1) if (isDecision(this.samples, i)) return this.samples[i];
    return null;
  }

  decisions() {
    return this.samples.map((_, i) => i).filter((i) => isDecision(this.samples, i));
  }

  // Partitions of each consumer at a sample, the largest first, and its load ÷ capacity.
  seats(index) {
    const { owners, loads } = this.samples[index];
    const seats = new Map();
    for (let p = 0; p < owners.length; p += 1) {
      const owner = owners[p];
      if (owner === NO_OWNER) continue;
      let seat = seats.get(owner);
      if (!seat) seats.set(owner, (seat = { owner, fill: 0, partitions: [] }));
      seat.partitions.push(p);
      if (loads[p] !== UNKNOWN) seat.fill += ratioOf(loads[p]);
    }
    for (const seat of seats.values()) seat.partitions.sort((a, b) => shown(loads[b]) - shown(loads[a]) || a - b);
    correctFills([...seats.values()], this.samples[index].metrics.max_fill);
    return [...seats.values()].sort((a, b) => compareNames(this.consumers[a.owner], this.consumers[b.owner]));
  }

  hottest(index, count) {
    const { loads, owners } = this.samples[index];
    const known = [...loads.keys()].filter((p) => loads[p] !== UNKNOWN && loads[p] > 0);
    known.sort((a, b) => loads[b] - loads[a] || a - b);
    return known.slice(0, count).map((p) => ({ partition: p, ratio: ratioOf(loads[p]), owner: owners[p] }));
  }

  // A load ÷ a consumer's capacity; null if it is unknown.
  ratio(load) {
    return load === UNKNOWN || load === undefined ? null : ratioOf(load);
  }

  consumer(owner) {
    return owner === NO_OWNER || owner === undefined ? "no consumer" : this.consumers[owner];
  }
}

// Loads are rounded to 2 %; the sidecar's own figure of the fullest consumer corrects their sums, so that both agree.
function correctFills(seats, fullest) {
  const most = seats.reduce((found, seat) => Math.max(found, seat.fill), 0);
  if (!fullest || !(Math.abs(most / fullest - 1) < MAX_ROUNDING)) return; // consumers of different capacities, say
  for (const seat of seats) seat.fill *= fullest / most;
}

const shown = (load) => (load === UNKNOWN ? -1 : load);
const collator = new Intl.Collator("en", { numeric: true });
const compareNames = (a, b) => collator.compare(a, b);

// A decision is marked where it does something, and once where it repeats.
export function isDecision(samples, i) {
  const one = samples[i];
  if (one.action === "hold" || one.leader === false) return false;
  return i === 0 || samples[i - 1].action !== one.action || samples[i - 1].reasons[0] !== one.reasons[0];
}
