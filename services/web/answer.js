// One answer on the page. All text comes from strangers: textContent only, http(s) links only.

export function element(tag, properties = {}, ...children) {
  const { data = {}, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

/** The address if a browser may follow it, else null. */
export function webAddress(url) {
  try {
    const { protocol, href } = new URL(url);
    return protocol === "http:" || protocol === "https:" ? href : null;
  } catch {
    return null;
  }
}

export function ago(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

let answers = 0;

export class AnswerView {
  constructor(question) {
    this.id = `answer-${++answers}`;
    this.text = "";
    this.points = 0; // code points so far: the unit of the markers' offsets
    this.results = new Map();
    this.cited = new Set();
    this.filtered = false;
    this.notes = element("div", { className: "notes" });
    this.status = element("p", { className: "status" });
    this.body = element("div", { className: "text", dir: "auto" });
    this.sources = element("section", { className: "sources", hidden: true });
    this.root = element(
      "article",
      { id: this.id },
      element("h2", { className: "asked", dir: "auto", textContent: question }),
      this.status,
      this.body,
      this.notes,
      this.sources,
    );
    this.root.setAttribute("aria-busy", "true");
    this.began = performance.now();
    this.say("Searching");
    this.clock = setInterval(() => this.tick(), 100);
  }

  say(stage) {
    this.stage = stage;
    this.tick();
  }

  tick() {
    this.status.textContent = `${this.stage} \u2026 ${((performance.now() - this.began) / 1000).toFixed(1)} s`;
  }

  /** One chunk of the stream. */
  take(chunk) {
    const { delta, finish_reason: finish } = chunk.choices?.[0] ?? { delta: {} };
    const ours = chunk.groundswell ?? {};
    if (ours.searched_posts !== undefined) this.searched = ours.searched_posts;
    if (chunk.search_results) this.results = new Map(chunk.search_results.map((result) => [result.number, result]));
    if (finish) return this.finish(finish, ours);
    if (ours.notice) this.note(ours.notice.message);
    if (delta.content) this.write(delta.content, delta.annotations ?? []);
    else if (delta.role) this.read();
    else if (this.searched !== undefined) this.say(`Searching ${this.searched.toLocaleString()} live posts`);
  }

  read() {
    const count = this.results.size;
    this.say(count ? `Reading ${count} ${count === 1 ? "post" : "posts"}` : "No recent posts on this; writing");
    this.showSources();
  }

  write(text, annotations) {
    this.stopClock();
    this.text += text;
    const points = Array.from(text);
    let at = 0;
    for (const { url_citation: place } of annotations) {
      const start = place.start_index - this.points;
      const end = place.end_index - this.points;
      const number = Number(place.marker?.slice(1, -1));
      if (start < at || end > points.length || !this.results.has(number)) continue;
      this.body.append(points.slice(at, start).join(""), this.chip(number));
      this.cited.add(number);
      at = end;
    }
    this.body.append(points.slice(at).join(""));
    this.points += points.length;
  }

  chip(number) {
    const result = this.results.get(number);
    const chip = element("a", { className: "chip", href: `#${this.id}-${number}`, textContent: number, data: { number } });
    const age = ago(Date.now() - Date.parse(result.date));
    chip.setAttribute("aria-label", `Source ${number}: ${result.title}, ${age} ago`);
    chip.title = `${result.title}: ${result.snippet}`;
    chip.addEventListener("click", (event) => {
      event.preventDefault();
      const card = document.getElementById(`${this.id}-${number}`);
      const drawer = card?.closest("details");
      if (drawer) drawer.open = true;
      card?.scrollIntoView({ block: "nearest" });
      card?.focus({ preventScroll: true });
    });
    return chip;
  }

  note(text) {
    this.notes.append(element("p", { className: "note", textContent: text }));
  }

  finish(reason, ours) {
    this.close();
    this.filtered = reason === "content_filter";
    for (const number of ours.removed ?? []) this.strike(number);
    this.cited = new Set(ours.cited ?? []);
    this.showSources(true);
    if (reason === "length") this.note("The answer reached its length limit.");
    if (reason === "content_filter") this.note(`Part of this was withheld (${ours.filter_reason ?? "filtered"}).`);
    const facts = [];
    if (typeof ours.newest_age_ms === "number") facts.push(`Newest post: ${ago(ours.newest_age_ms)} old.`);
    else facts.push("No recent posts stand behind this.");
    const loose = ours.unsupported_sentences ?? 0;
    if (loose) facts.push(`${loose} ${loose === 1 ? "sentence has" : "sentences have"} no post behind ${loose === 1 ? "it" : "them"}.`);
    this.sources.before(element("p", { className: "facts", textContent: facts.join(" ") }));
  }

  /** The post behind this marker is gone: no link, no words of it. */
  strike(number) {
    for (const chip of this.body.querySelectorAll(`.chip[data-number="${number}"]`)) {
      chip.replaceWith(element("s", { className: "gone", textContent: number, title: "This post was removed." }));
    }
  }

  showSources(ended = false) {
    const results = [...this.results.values()];
    this.sources.hidden = results.length === 0;
    const main = ended ? results.filter((result) => this.cited.has(result.number)) : [];
    const rest = results.filter((result) => !main.includes(result));
    this.sources.replaceChildren();
    if (main.length) this.sources.append(element("h3", { textContent: "Sources" }), this.cards(main));
    if (rest.length) {
      const title = main.length ? `${rest.length} more read` : `${rest.length} ${rest.length === 1 ? "post" : "posts"} read`;
      this.sources.append(element("details", {}, element("summary", { textContent: title }), this.cards(rest)));
    }
  }

  cards(results) {
    return element("ol", { className: "cards" }, ...results.map((result) => this.card(result)));
  }

  card(result) {
    const posted = Date.parse(result.date);
    const time = element("time", { dateTime: result.date, title: new Date(posted).toLocaleString() });
    time.textContent = `${ago(Date.now() - posted)} ago`;
    const head = element(
      "p",
      { className: "by" },
      element("span", { className: "number", textContent: result.number }),
      element("bdi", { className: "name", textContent: result.author_name || result.author_handle }),
      element("bdi", { className: "handle", textContent: result.author_handle ? `@${result.author_handle}` : "" }),
      time,
    );
    const said = element("p", { className: "said", dir: "auto", textContent: result.snippet });
    const foot = element("p", { className: "from" }, element("span", { textContent: result.source }));
    const href = webAddress(result.url);
    if (href) {
      const link = { href, rel: "noopener noreferrer nofollow", target: "_blank", textContent: "Open post" };
      foot.append(element("a", link));
    }
    return element("li", { id: `${this.id}-${result.number}`, tabIndex: -1 }, head, said, foot);
  }

  /** `again` asks the same question once more. */
  fail(fault, again) {
    this.close();
    const retry = element("button", { type: "button", className: "quiet", textContent: "Try again" });
    retry.addEventListener("click", again);
    const box = element("div", { className: "fault" }, element("p", { textContent: fault.message }), retry);
    box.setAttribute("role", "alert");
    const facts = [fault.code, fault.requestId && `request ${fault.requestId}`].filter(Boolean).join(" \u00b7 ");
    if (facts) box.append(element("small", { textContent: facts }));
    if (fault.retryAfterS) this.countDown(retry, fault.retryAfterS);
    this.notes.append(box);
  }

  countDown(button, seconds) {
    button.disabled = true;
    const step = () => {
      button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
      button.disabled = seconds > 0;
      if (seconds-- > 0) setTimeout(step, 1000);
    };
    step();
  }

  stopped() {
    this.close();
    this.note("Stopped.");
  }

  stopClock() {
    clearInterval(this.clock);
    this.status.hidden = true;
  }

  close() {
    this.stopClock();
    this.root.setAttribute("aria-busy", "false");
  }
}
