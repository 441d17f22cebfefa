// Accuracy and loss: for each arm the mean of its finished runs and their range; other runs as thin lines.
const smoothing = document.getElementById('smoothing');

function smooth(values, width) {
  return values.map((value, at) => {
    const near = values.slice(Math.max(0, at - width + 1), at + 1).filter((v) => v !== null);
    return value === null || !near.length ? null : near.reduce((sum, v) => sum + v, 0) / near.length;
  });
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
    low: pick((values) => Math.min(...values)),
    high: pick((values) => Math.max(...values)),
  };
}

function curveTraces(theme, group, name, scale) {
  const width = Number(smoothing.value);
  const scaled = (values) => values.map((value) => (value === null ? null : scale * value));
  const digits = name === 'accuracy' ? '.2f' : '.4f';
  return group.arms.flatMap((arm) => {
    const colour = armColour(theme, arm.colour);
    const finished = arm.runs.filter((run) => run.state === 'finished' && run.rounds.length);
    const curve = overSeeds(finished, name, width);
    const seeds = finished.length === 1 ? `seed ${finished[0].seed}` : `${finished.length} seeds`;
    const own = { legendgroup: `arm ${arm.label}` };
    const traces = finished.length < 2 ? [] : [band(curve.rounds, scaled(curve.low), scaled(curve.high), colour, own)];
    if (finished.length) {
      traces.push({
        x: curve.rounds, y: scaled(curve.mean), type: 'scatter', mode: curve.rounds.length > 1 ? 'lines' : 'markers',
        name: plain(`${arm.label}, ${seeds}`), ...own, line: { color: colour, width: 2.25, dash: armDash(arm.colour) }, marker: { color: colour },
        customdata: curve.rounds.map((_, at) => [scale * curve.low[at], scale * curve.high[at]]),
        hovertemplate: `%{y:${digits}} (%{customdata[0]:${digits}} to %{customdata[1]:${digits}})`,
      });
    }
    for (const run of arm.runs.filter((run) => run.state !== 'finished' && run.rounds.length)) {
      traces.push({
        x: run.rounds, y: scaled(smooth(run[name], width)), type: 'scatter', mode: run.rounds.length > 1 ? 'lines' : 'markers',
        name: plain(`${arm.label}, seed ${run.seed}, ${run.state}`), legendgroup: `run ${run.name}`,
        line: { color: colour, width: 1.25, dash: 'dot' }, marker: { color: colour }, hovertemplate: `%{y:${digits}}`,
      });
    }
    return traces;
  });
}

function curvePlot(group, name, title, scale) {
  return (theme) => ({
    traces: curveTraces(theme, group, name, scale),
    layout: layout(theme, {
      hovermode: 'x unified', showlegend: true,
      xaxis: axis(theme, 'round', { hoverformat: 'd', showgrid: false, tickformat: 'd' }),
      yaxis: axis(theme, title, { rangemode: 'normal' }),
    }),
  });
}

data.groups.forEach((group, number) => {
  register(`plot-accuracy-${number}`, curvePlot(group, 'accuracy', 'test accuracy, %', 100));
  register(`plot-loss-${number}`, curvePlot(group, 'loss', 'test loss', 1));
});

smoothing.addEventListener('input', () => {
  const width = Number(smoothing.value);
  document.getElementById('smoothing-text').textContent = width > 1 ? `each point is the mean of up to ${width} rounds` : 'off';
  for (const id of plots.keys()) if (/^plot-(accuracy|loss)-/.test(id)) show(id);
});
