// The chat page: questions in, answers and their posts out.

import { ask } from "./stream.js";
import { AnswerView, ago, element } from "./answer.js";

const STATUS_EVERY_MS = 5000;
const HISTORY = 12; // earlier turns that go along with a question
const KEY = "groundswell-key";

const [log, welcome, announce, form, question, send, stop] = [
  "log", "welcome", "announce", "composer", "question", "send", "stop",
].map((id) => document.getElementById(id));
const [keyDialog, keyForm, keyInput, keyFault, keyCancel] = [
  "key-dialog", "key-form", "key", "key-fault", "key-cancel",
].map((id) => document.getElementById(id));

const history = [];
let running = null; // the AbortController of the answer being written

// ---- asking ---------------------------------------------------------------------------------------------------------

async function answer(text) {
  if (running) return;
  welcome.hidden = true;
  const view = new AnswerView(text);
  log.append(view.root);
  running = new AbortController();
  show(true);
  view.root.scrollIntoView({ block: "start" });
  const asked = { role: "user", content: text };
  try {
    for await (const chunk of ask([...history.slice(-HISTORY), asked], sessionStorage.getItem(KEY), running.signal)) {
      following(() => view.take(chunk));
    }
    remember(asked, view);
    announce.textContent = `Answer complete, ${view.cited.size} sources.`;
  } catch (fault) {
    end(fault, view, asked);
  } finally {
    running = null;
    show(false);
  }
}

function end(fault, view, asked) {
  const again = () => {
    if (running) return;
    view.root.remove();
    answer(asked.content);
  };
  if (fault.name === "AbortError") {
    view.stopped();
    remember(asked, view);
    announce.textContent = "Stopped.";
  } else if (fault.status === 401) {
    following(() => view.fail(fault, again));
    askForKey(again);
  } else {
    following(() => view.fail(fault, again));
  }
}

/** What was refused is not sent again: it would have every later question refused. */
function remember(asked, view) {
  if (view.text && !view.filtered) history.push(asked, { role: "assistant", content: view.text });
}

/** Changes the page, and stays at its end if the reader was there. */
function following(change) {
  const page = document.scrollingElement;
  const atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 80;
  change();
  if (atEnd) page.scrollTop = page.scrollHeight;
}

function show(busy) {
  send.hidden = busy;
  stop.hidden = !busy;
  if (busy) announce.textContent = "Answering.";
  fit();
}

function fit() {
  send.disabled = !question.value.trim();
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, 200)}px`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (!text || running) return;
  question.value = "";
  fit();
  answer(text);
});
question.addEventListener("input", fit);
window.addEventListener("resize", fit);
question.addEventListener("keydown", (event) => {
  // An input method's Enter picks a word, it does not ask.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
stop.addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !keyDialog.open) running?.abort();
});

// ---- suggestions ----------------------------------------------------------------------------------------------------

const suggestions = document.querySelector("[data-suggestions]");
suggestions.addEventListener("click", (event) => {
  if (event.target instanceof HTMLButtonElement && !running) answer(event.target.textContent);
});

function suggest(questions) {
  const items = questions.map((text) => element("li", {}, element("button", { type: "button", textContent: text, dir: "auto" })));
  suggestions.replaceChildren(...items);
}

// ---- the key --------------------------------------------------------------------------------------------------------

function askForKey(again) {
  keyFault.hidden = !sessionStorage.getItem(KEY);
  keyInput.value = "";
  keyForm.onsubmit = () => {
    sessionStorage.setItem(KEY, keyInput.value.trim());
    keyInput.value = "";
    look();
    again();
  };
  keyDialog.showModal();
}
keyCancel.addEventListener("click", () => keyDialog.close());

// ---- the feed's pulse -----------------------------------------------------------------------------------------------

const feed = document.getElementById("feed");
const feedText = document.getElementById("feed-text");
let suggested = "";

async function look() {
  const key = sessionStorage.getItem(KEY);
  try {
    const response = await fetch("status", { headers: key ? { authorization: `Bearer ${key}` } : {} });
    if (response.status === 401) return tell("unknown", "needs a key");
    if (!response.ok) return tell("stale", "feed unknown");
    const { posts, newest_age_ms: age, suggestions: questions } = await response.json();
    if (questions?.length && suggested !== String(questions)) {
      suggested = String(questions);
      suggest(questions);
    }
    const count = `${(posts ?? 0).toLocaleString()} posts`;
    if (typeof age !== "number") return tell("stale", `${count}`);
    tell(age < 120_000 ? "live" : age < 900_000 ? "delayed" : "stale", `${count}\u00a0\u00b7 newest\u00a0${ago(age).replace(" ", "\u00a0")}\u00a0ago`);
  } catch {
    tell("stale", "service unreachable");
  }
}

function tell(state, text) {
  feed.dataset.state = state;
  feedText.textContent = text;
}

function refresh() {
  if (document.visibilityState !== "visible") return;
  look();
  for (const time of log.querySelectorAll("time")) time.textContent = `${ago(Date.now() - Date.parse(time.dateTime))} ago`;
}

setInterval(refresh, STATUS_EVERY_MS);
document.addEventListener("visibilitychange", refresh);
look();
fit();
