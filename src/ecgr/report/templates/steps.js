// Which steps were kept: all clients of a run in a scene that turns, one client as a map.
const MOST_POINTS = 3000;
const MOST_CELLS = 100000;
const SIDE = 100;
const EYE = narrow.matches ? { x: 1.95, y: -1.95, z: 1.15 } : { x: 1.7, y: -1.7, z: 1 };
const chosen = { run: 0, client: 0 };

// Rows by round, columns by step: 1 where a step was kept, 0 where it was not, null where there was none.
function cells(map) {
  const bytes = Uint8Array.from(atob(map.data), (letter) => letter.charCodeAt(0));
  return map.rounds.map((_, row) => Array.from({ length: map.columns }, (_, column) => {
    const at = row * map.columns + column;
    return column < map.steps[row] ? (bytes[at >> 3] >> (7 - (at & 7))) & 1 : null;
  }));
}

// Cells of several steps and rounds hold the share that was kept, and are named by the step in their middle.
function coarser(map, rows, columns) {
  const fine = cells(map);
  const [height, width] = [Math.min(rows, fine.length), Math.min(columns, map.columns)];
  const sums = Array.from({ length: height }, () => Array.from({ length: width }, () => [0, 0]));
  fine.forEach((line, row) => line.forEach((share, column) => {
    if (share === null) return;
    const cell = sums[Math.floor((row * height) / fine.length)][Math.floor((column * width) / map.columns)];
    cell[0] += share;
    cell[1] += 1;
  }));
  const each = map.columns / width;
  return {
    shares: sums.map((line) => line.map(([sum, count]) => (count ? sum / count : null))),
    steps: Array.from({ length: width }, (_, column) => 1 + each * column + (each - 1) / 2),
    rounds: Array.from({ length: height }, (_, row) => map.rounds[Math.ceil((row * fine.length) / height)]),
  };
}

// A round in which the client did not take part is an empty row, not a stretched neighbour.
function everyRound(map) {
  const filled = new Map(cells(map).map((line, row) => [map.rounds[row], line]));
  const [first, last] = [map.rounds[0], Math.max(...map.rounds)];
  const rounds = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  return {
    shares: rounds.map((round) => filled.get(round) ?? Array(map.columns).fill(null)),
    steps: Array.from({ length: map.columns }, (_, column) => column + 1),
    rounds,
  };
}

function keptPoints(run) {
  const points = { x: [], y: [], z: [], value: [], binned: false };
  const add = (step, round, client, value) => { points.x.push(step); points.y.push(round); points.z.push(client); points.value.push(value); };
  const total = run.clients.reduce((sum, map) => sum + map.steps.reduce((a, b) => a + b, 0), 0);
  if (total <= 2 * MOST_POINTS) {
    for (const map of run.clients) {
      cells(map).forEach((line, row) => line.forEach((kept, step) => { if (kept) add(step + 1, map.rounds[row], map.client, (step + 0.5) / map.steps[row]); }));
    }
    return points;
  }
  const side = Math.max(4, Math.floor(Math.sqrt((2 * MOST_POINTS) / run.clients.length)));
  const coarse = run.clients.map((map) => ({ client: map.client, ...coarser(map, side, side) }));
  const shares = coarse.flatMap((map) => map.shares.flat()).filter((share) => share !== null);
  const usual = shares.reduce((a, b) => a + b, 0) / shares.length;
  for (const map of coarse) {
    map.shares.forEach((line, row) => line.forEach((share, column) => { if (share !== null && share > usual) add(map.steps[column], map.rounds[row], map.client, share); }));
  }
  return { ...points, binned: true };
}

register('plot-overview', (theme) => {
  const run = data.steps[chosen.run];
  const points = keptPoints(run);
  const many = run.clients.length > 1 ? `${run.clients.length} clients` : 'One client';
  document.getElementById('overview-caption').textContent = points.binned
    ? `${many}, in cells of several steps and rounds. Shown are the cells of which more was kept than on average; the colour is the share kept.`
    : `${many}. Each cube is a kept step; the colour is its position in the client’s local training. Drag to turn, or use the buttons.`;
  const ends = (values) => [Math.min(...values) - 0.5, Math.max(...values) + 0.5];
  const side = (title, more) => ({
    title: { text: title, font: { size: 13 } }, color: theme.quiet, gridcolor: theme.grid, zeroline: false, showspikes: false,
    backgroundcolor: 'rgba(0,0,0,0)', showbackground: false, tickfont: { size: 11 }, ...more,
  });
  const clients = run.clients.map((map) => map.client);
  const [sizes, rounds] = [run.clients.map((map) => map.columns), run.clients.flatMap((map) => map.rounds)];
  return {
    traces: [{
      type: 'scatter3d', mode: 'markers', x: points.x, y: points.y, z: points.z,
      marker: {
        symbol: 'square', line: { width: 0 }, size: Math.max(2.5, Math.min(6, 170 / Math.sqrt(points.x.length))), color: points.value, colorscale: [[0, theme.low], [0.5, theme.middle], [1, theme.high]], cmin: points.binned ? undefined : 0, cmax: points.binned ? undefined : 1,
        opacity: 1, colorbar: { x: 1, xanchor: 'right', title: { text: points.binned ? 'share kept' : 'position', side: 'right', font: { size: 12 } }, thickness: 8, len: 0.6, outlinewidth: 0, tickfont: { size: 11, color: theme.quiet } },
      },
      hovertemplate: points.binned ? 'client %{z}, near round %{y}, step %{x:.0f}: %{marker.color:.0%} kept<extra></extra>' : 'client %{z}, round %{y}, step %{x}<extra></extra>',
    }],
    buttons: ['resetCameraDefault3d'],
    layout: layout(theme, {
      margin: { l: 0, r: 0, t: 0, b: 0 }, uirevision: 'scene', dragmode: 'turntable',
      scene: {
        domain: { x: [0, 0.9], y: [0, 1] },
        xaxis: side('step', { range: ends([1, ...sizes]), ...wholeMarks(sizes) }), yaxis: side('round', { range: ends(rounds), ...wholeMarks(rounds) }), zaxis: side('client', { range: ends(clients), ...wholeMarks(clients) }),
        aspectmode: 'manual', aspectratio: { x: 1.15, y: 1.15, z: 0.8 }, camera: { eye: EYE, center: { x: 0, y: 0, z: -0.08 } },
      },
    }),
  };
});

register('plot-map', (theme) => {
  const map = data.steps[chosen.run].clients[chosen.client];
  const share = map.rounds.length * map.columns > MOST_CELLS;
  const { shares, steps, rounds } = share ? coarser(map, SIDE, SIDE) : everyRound(map);
  document.getElementById('map-caption').textContent = share
    ? `Client ${map.client}: up to ${map.columns} steps a round, in cells of several steps and rounds; the stronger the colour, the more was kept.`
    : `Client ${map.client}: up to ${map.columns} steps a round. Filled cells were kept, the others damped.`;
  const few = shares.length * map.columns <= 2500;
  return {
    traces: [{
      type: 'heatmap', x: steps, y: rounds, z: shares, zmin: 0, zmax: 1, showscale: share, xgap: few ? 1 : 0, ygap: few ? 1 : 0, hoverongaps: false,
      colorscale: [[0, theme.damped], [1, theme.methods[1]]], colorbar: { title: { text: 'share kept', side: 'right', font: { size: 12 } }, thickness: 8, outlinewidth: 0, tickformat: '.0%' },
      text: shares.map((line) => line.map((kept) => (kept === null ? '' : share ? `${Math.round(100 * kept)} % kept` : kept ? 'kept' : 'damped'))),
      hovertemplate: 'round %{y}, step %{x:.0f}: %{text}<extra></extra>',
    }],
    layout: layout(theme, {
      margin: { l: 48, r: 12, t: 12, b: 44 },
      xaxis: axis(theme, 'step', { showgrid: false, ...wholeMarks([map.columns]) }), yaxis: roundAxis(theme, rounds, { type: 'linear' }),
    }),
  };
});

function chooseRun() {
  const labels = data.steps[chosen.run].clients.map((map) => `${map.client} (${map.columns} steps a round)`);
  chosen.client = Math.min(chosen.client, labels.length - 1);
  const menu = choices('steps-client', labels, (event) => { chosen.client = Number(event.target.value); show('plot-map'); });
  menu.value = chosen.client;
}

if (data.steps.length) {
  choices('steps-run', data.steps.map((run) => run.label), (event) => {
    chosen.run = Number(event.target.value);
    chooseRun();
    for (const id of ['plot-overview', 'plot-map']) show(id);
  });
  const sizes = data.steps[0].clients.map((map) => map.columns);
  chosen.client = sizes.indexOf(Math.max(...sizes));
  chooseRun();
}

for (const button of document.querySelectorAll('[data-turn]')) {
  button.addEventListener('click', () => {
    const scene = document.getElementById('plot-overview');
    const eye = scene.layout.scene.camera.eye;
    const turned = (angle) => ({ x: eye.x * Math.cos(angle) - eye.y * Math.sin(angle), y: eye.x * Math.sin(angle) + eye.y * Math.cos(angle), z: eye.z });
    const views = { left: turned(-Math.PI / 8), right: turned(Math.PI / 8), above: { x: 0, y: -0.01, z: 2.3 }, back: EYE };
    Plotly.relayout(scene, { 'scene.camera.eye': views[button.dataset.turn] });
  });
}
