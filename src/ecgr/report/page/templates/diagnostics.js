// Diagnostics, each under its own name.
const FIRST_TILES = 6;
const diagnosed = data.diagnostics.map((list, number) => ({ list, number })).filter(({ list }) => list.length);

function diagnosticPlot(entry) {
  return (theme) => ({
    traces: entry.arms.flatMap((arm) => {
      const colour = armColour(theme, arm.colour);
      return [
        band(arm.rounds, arm.low, arm.high, colour),
        {
          x: arm.rounds, y: arm.mean, type: 'scatter', mode: arm.rounds.length > 1 ? 'lines' : 'markers', name: plain(arm.label, 24),
          line: { color: colour, width: 2, dash: armDash(arm.colour) }, marker: { color: colour }, hovertemplate: '%{y:.4~g}',
        },
      ];
    }),
    layout: layout(theme, {
      hovermode: 'x unified', showlegend: entry.arms.length < 4, margin: { l: 40, r: 8, t: 28, b: 36 },
      xaxis: roundAxis(theme, entry.arms.flatMap((arm) => arm.rounds)), yaxis: axis(theme, ''),
    }),
  });
}

function tile(entry, number) {
  const figure = document.createElement('figure');
  const heading = document.createElement('h3');
  heading.textContent = entry.name;
  const about = document.createElement('p');
  about.textContent = entry.about;
  const plot = document.createElement('div');
  plot.className = 'plot';
  plot.id = `plot-diagnostic-${number}`;
  plot.setAttribute('role', 'img');
  plot.setAttribute('aria-label', `${entry.name} over rounds`);
  figure.append(heading, about, plot);
  return figure;
}

// The first tiles are drawn with the page, the others when they are asked for.
function tiles({ list }) {
  for (const id of [...plots.keys()].filter((key) => key.startsWith('plot-diagnostic-'))) {
    Plotly.purge(id);
    plots.delete(id);
  }
  const all = list.map(tile);
  document.getElementById('diagnostics-plots').replaceChildren(...all.slice(0, FIRST_TILES));
  document.getElementById('diagnostics-others').replaceChildren(...all.slice(FIRST_TILES));
  const more = document.getElementById('diagnostics-more');
  more.hidden = all.length <= FIRST_TILES;
  more.open = false;
  more.firstElementChild.textContent = `${all.length - FIRST_TILES} more quantities`;
  const add = (from, to) => list.slice(from, to).map((entry, at) => {
    register(`plot-diagnostic-${from + at}`, diagnosticPlot(entry));
    return `plot-diagnostic-${from + at}`;
  });
  more.ontoggle = async () => {
    if (more.open) for (const id of add(FIRST_TILES, all.length)) await show(id);
  };
  return add(0, FIRST_TILES);
}

if (diagnosed.length) {
  tiles(diagnosed[0]);
  choices('diagnostics-group', diagnosed.map(({ number }) => data.groups[number].label), async (event) => {
    for (const id of tiles(diagnosed[Number(event.target.value)])) await show(id);
  });
}
