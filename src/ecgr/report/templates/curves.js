// The primary metric and the loss: for each method the mean of its finished runs, in a band that holds the middle half of them.
const smoothing = document.getElementById('smoothing');

function smooth(values, width) {
  return values.map((value, at) => {
    const near = values.slice(Math.max(0, at - width + 1), at + 1).filter((v) => v !== null);
    return value === null || !near.length ? null : near.reduce((sum, v) => sum + v, 0) / near.length;
  });
}

function quantile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  const at = share * (sorted.length - 1);
  const below = sorted[Math.floor(at)];
  return below + (at % 1) * (sorted[Math.ceil(at)] - below);
}

function overSeeds(runs, name, width) {
  const byRound = new Map();
  for (const run of runs) {
    smooth(run[name], width).forEach((value, at) => {
      if (value === null) return;
      if (!byRound.has(run.rounds[at])) byRound.set(run.rounds[at], []);
      byRound.get(run.rounds[at]).push(value);
    });
  }
  const rounds = [...byRound.keys()].sort((a, b) => a - b);
  const pick = (how) => rounds.map((round) => how(byRound.get(round)));
  return {
    rounds,
    mean: pick((values) => values.reduce((sum, v) => sum + v, 0) / values.length),
    quarter: pick((values) => quantile(values, 0.25)),
    threeQuarters: pick((values) => quantile(values, 0.75)),
    low: pick((values) => Math.min(...values)),
    high: pick((values) => Math.max(...values)),
  };
}

function curveTraces(theme, group, name, digits) {
  const width = Number(smoothing.value);
  const lines = (rounds) => (rounds.length > 1 ? 'lines' : 'markers');
  const behind = [];
  const means = [];
  for (const method of group.methods) {
    const colour = methodColour(theme, method.colour);
    // references would stretch the axis: where they end is in the picture beside it
    const own = { legendgroup: `method ${method.label}`, visible: method.colour < 0 ? 'legendonly' : true };
    const finished = method.runs.filter((run) => run.state === 'finished' && run.rounds.length);
    const curve = overSeeds(finished, name, width);
    const seeds = finished.length === 1 ? `seed ${finished[0].seed}` : `${finished.length} seeds`;
    if (finished.length > 1) {
      behind.push({
        x: [...curve.rounds, ...curve.rounds.toReversed()], y: [...curve.threeQuarters, ...curve.quarter.toReversed()], type: 'scatter', mode: 'lines', ...own,
        fill: 'toself', fillcolor: faint(colour, 0.13), line: { width: 0 }, showlegend: false, hoverinfo: 'skip',
      });
    }
    if (name === 'metric' && method.arrives) {
      means.push({
        x: [method.arrives[0]], y: [method.arrives[1]], type: 'scatter', mode: 'markers', ...own, showlegend: false,
        marker: { color: theme.paper, size: 9, line: { color: colour, width: 2 } },
        hovertemplate: `${plain(method.label)} gets there in round %{x:.0f}<extra></extra>`,
      });
    }
    if (finished.length) {
      means.push({
        x: curve.rounds, y: curve.mean, type: 'scatter', mode: lines(curve.rounds),
        name: plain(`${method.label}, ${seeds}`), ...own, line: { color: colour, width: 2.5, dash: methodDash(method.colour) }, marker: { color: colour },
        customdata: curve.rounds.map((_, at) => [curve.low[at], curve.high[at]]),
        hovertemplate: `%{y:${digits}} (%{customdata[0]:${digits}} to %{customdata[1]:${digits}})`,
      });
    }
    for (const run of method.runs.filter((run) => run.state !== 'finished' && run.rounds.length)) {
      means.push({
        x: run.rounds, y: smooth(run[name], width), type: 'scatter', mode: lines(run.rounds),
        name: plain(`${method.label}, seed ${run.seed}, ${run.state}`), legendgroup: `run ${run.name}`,
        line: { color: colour, width: 1.25, dash: 'dot' }, marker: { color: colour }, hovertemplate: `%{y:${digits}}`,
      });
    }
  }
  return [...behind, ...means];
}

function curvePlot(group, name, title, digits) {
  const rounds = group.methods.flatMap((method) => method.runs.flatMap((run) => run.rounds));
  return (theme, element) => {
    // a legend of many names takes lines of its own
    const lines = Math.ceil(group.methods.length / (narrow.matches ? 1 : 2)) - 1;
    element.style.height = `${(narrow.matches ? 18 : 21) + 1.4 * Math.min(8, lines)}rem`;
    return {
      traces: curveTraces(theme, group, name, digits),
      layout: layout(theme, {
        hovermode: 'x unified', showlegend: true,
        xaxis: roundAxis(theme, rounds), yaxis: axis(theme, plain(title), { rangemode: 'normal' }),
      }),
    };
  };
}

data.groups.forEach((group, number) => {
  register(`plot-metric-${number}`, curvePlot(group, 'metric', group.metric, group.digits));
  register(`plot-loss-${number}`, curvePlot(group, 'loss', 'test loss', '.4f'));
});

// Every trial of tuning by its learning rate and its score, better ones higher; those that failed lie below all others.
register('plot-trials', (theme) => {
  const { methods, metric, larger_is_better: larger } = data.trials;
  const scores = methods.flatMap((method) => method.dots.map((dot) => dot[1])).filter((score) => score !== null);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const failed = larger ? low - 0.08 * (high - low || 1) : high + 0.08 * (high - low || 1);
  return {
    traces: methods.map(({ label, colour, dots }) => ({
      x: dots.map((dot) => dot[0]), y: dots.map((dot) => dot[1] ?? failed), type: 'scatter', mode: 'markers', name: plain(label),
      marker: {
        color: methodColour(theme, colour), size: dots.map((dot) => (dot[2] ? 12 : 7)), opacity: dots.map((dot) => (dot[2] ? 1 : 0.5)),
        symbol: dots.map((dot) => (dot[1] === null ? 'x' : 'circle')),
      },
      text: dots.map((dot) => (dot[1] === null ? 'failed' : `${dot[1]}${dot[2] ? ', chosen' : ''}`)),
      hovertemplate: `${plain(label)}: %{x:.2g}, %{text}<extra></extra>`,
    })),
    layout: layout(theme, {
      hovermode: 'closest', showlegend: true,
      xaxis: axis(theme, 'learning rate', { type: 'log', showgrid: false }),
      yaxis: axis(theme, plain(metric), { autorange: larger ? true : 'reversed' }),
    }),
  };
});

if (smoothing) {
  smoothing.addEventListener('input', () => {
    const width = Number(smoothing.value);
    document.getElementById('smoothing-text').textContent = width > 1 ? `each point is the mean of up to ${width} rounds` : 'off';
    for (const id of plots.keys()) if (/^plot-(metric|loss)-/.test(id)) show(id);
  });
}
