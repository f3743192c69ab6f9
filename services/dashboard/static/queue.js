// The queue with the keyboard, its dialogs, and the large view.
"use strict";

(() => {
  const cards = () => [...document.querySelectorAll(".card")];
  const byId = (id) => document.getElementById(id);
  let place = -1; // of the card that was last looked at, so that j goes on where it was after a card was replaced

  const current = () => document.activeElement?.closest?.(".card") ?? cards()[place];

  function go(step) {
    const all = cards();
    const here = all.indexOf(document.activeElement?.closest?.(".card"));
    const from = here >= 0 ? here : place;
    place = Math.max(0, Math.min(all.length - 1, from + step));
    all[place]?.focus();
    all[place]?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("focusin", (event) => {
    const at = cards().indexOf(event.target.closest(".card"));
    if (at >= 0) place = at;
  });

  function open(dialogId, opener, card, act, prepare) {
    if (!card?.querySelector(opener)) return;
    const dialog = byId(dialogId), form = dialog.querySelector("form"), address = `/queue/${card.dataset.item}/${act}`;
    form.action = address;
    form.dataset.card = card.id;
    prepare(form);
    dialog.showModal();
  }
  const openDrop = (card) => open("drop", "[data-drop]", card, "drop", (form) => { form.elements.reason.value = ""; });
  const openPriority = (card) => open("priority", "[data-set]", card, "priority", (form) => {
    form.elements.priority.value = Number(card.dataset.priority).toFixed(4).replace(/\.?0+$/, "");
    setTimeout(() => form.elements.priority.select());
  });

  // The dialogs' forms belong to whichever card opened them.
  for (const id of ["drop", "priority"]) {
    byId(id).querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const form = event.target;
      byId(id).close();
      htmx.ajax("POST", form.action, { target: `#${form.dataset.card}`, swap: "outerHTML", values: Object.fromEntries(new FormData(form)) });
    });
  }

  // A card that was replaced keeps the focus that it had, and the tabs count it where it is now.
  const states = new Map(cards().map((card) => [card.id, card.dataset.state]));
  const add = (state, number) => {
    const shown = document.querySelector(`[data-count="${state}"]`);
    if (shown) shown.textContent = Number(shown.textContent.replace(/\D/g, "")) + number;
  };
  document.addEventListener("htmx:after:swap", () => {
    for (const { id, dataset: { state } } of cards()) {
      if (states.get(id) === state) continue;
      add(states.get(id), -1);
      add(state, 1);
      states.set(id, state);
    }
    if (document.activeElement === document.body && place >= 0) cards()[place]?.focus({ preventScroll: true });
  });

  let looked = null;
  function look(card) {
    const picture = card.querySelector("[data-look]"), dialog = byId("look"), image = dialog.querySelector("img");
    looked = picture;
    image.src = picture.href;
    image.alt = picture.querySelector("img").alt;
    dialog.querySelector(".caption").textContent = card.querySelector(".why").textContent;
    dialog.showModal();
    image.complete ? drawLooked() : image.addEventListener("load", drawLooked, { once: true });
  }
  async function drawLooked() {
    const dialog = byId("look");
    if (!dialog.open || !looked) return;
    const image = dialog.querySelector("img"), canvas = dialog.querySelector("canvas");
    // The picture is fitted into its box: the canvas covers just the picture.
    const scale = Math.min(image.clientWidth / image.naturalWidth, image.clientHeight / image.naturalHeight);
    const width = image.naturalWidth * scale, height = image.naturalHeight * scale;
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px`, left: `${(image.clientWidth - width) / 2}px`, top: `${(image.clientHeight - height) / 2}px` });
    Overlay.draw(canvas, await Overlay.predictions(looked), Overlay.shown());
  }
  document.addEventListener("overlay:changed", drawLooked);
  addEventListener("resize", drawLooked);

  document.addEventListener("click", (event) => {
    const card = event.target.closest(".card");
    if (!card) return;
    if (event.target.closest("[data-drop]")) openDrop(card);
    if (event.target.closest("[data-set]")) openPriority(card);
    if (event.target.closest("[data-look]") && !event.metaKey && !event.ctrlKey && !event.shiftKey) {
      event.preventDefault();
      look(card);
    }
  });

  const toggle = (boxes, on) => {
    for (const box of boxes) box.checked = on(box);
    Overlay.refreshAll();
  };

  const KEYS = {
    j: () => go(1),
    k: () => go(-1),
    Enter: () => { if (document.activeElement?.matches(".card")) look(document.activeElement); },
    d: () => openDrop(current()),
    s: () => openPriority(current()),
    p: () => current()?.querySelector("[data-front]")?.click(),
    u: () => document.querySelector("#notice.shown [data-undo]")?.click(),
    o: () => current()?.querySelector("[data-task]")?.click(),
    c: () => current()?.querySelector("[data-clip]")?.click(),
    "?": () => byId("help").showModal(),
    0: () => { const any = Overlay.shown().size > 0; toggle(Overlay.toggles(), () => !any); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
    const openDialog = document.querySelector("dialog[open]");
    const digit = /^[1-9]$/.test(event.key) ? Overlay.toggles()[Number(event.key) - 1] : null;
    if (openDialog && !(openDialog.id === "look" && (digit || event.key === "0"))) return;
    if (digit) toggle([digit], (box) => !box.checked);
    else if (KEYS[event.key]) {
      // Enter on a link or a button is that one's own; elsewhere it must not go on to press what the key has just opened.
      if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
      event.preventDefault();
      KEYS[event.key]();
    }
  });
})();
