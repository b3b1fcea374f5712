package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// options of one run.
type options struct {
	// Out is the payload directory. Supplied is the directory with executables that are copied unchanged; it may be
	// empty. Root is the top of the source tree.
	Out, Supplied, Root string
	// Version of the payload.
	Version string
	// Components are the programs that can be built.
	Components []component
	// Stdout receives progress and the summary, Stderr the output of the go command.
	Stdout, Stderr io.Writer
}

// work is a running run.
type work struct {
	options
	tools   toolchain
	scratch string
	builder *assembly.Builder
	notices notices
}

// run fills the payload directory. If a build fails, run fails. A part that can't be built and isn't supplied is
// listed as missing.
func run(ctx context.Context, o options) (err error) {
	supplied, err := suppliedParts(o.Supplied)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "payload-")
	if err != nil {
		return fmt.Errorf("making a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	builder, err := assembly.NewBuilder(o.Out)
	if err != nil {
		return err
	}
	w := &work{options: o, tools: toolchain{o.Root, o.Stderr}, scratch: scratch, builder: builder}
	steps := w.plan(supplied)
	for i, step := range steps {
		w.say("[%2d/%d] %s\n", i+1, len(steps), step.what)
		began := time.Now()
		f, err := step.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if f.Name != "" {
			w.say("        %s %s, %s, %s\n", f.Name, f.Version, mebibytes(f.Size),
				time.Since(began).Round(100*time.Millisecond))
		}
	}
	manifest, err := builder.Finish(o.Version)
	if err != nil {
		return err
	}
	if err = w.writeNotices(ctx); err != nil {
		return err
	}
	return summarize(o.Stdout, o.Out, manifest)
}

// say prints progress. The build continues if the terminal is gone.
func (w *work) say(format string, args ...any) { _, _ = fmt.Fprintf(w.Stdout, format, args...) }

// step produces one part.
type step struct {
	what string
	do   func(ctx context.Context) (payload.File, error)
}

// plan returns a step for each part. Supplied parts are copied. Other parts are built in the order of the
// components. The rest is missing.
func (w *work) plan(supplied map[string]bool) []step {
	var steps, missing []step
	for _, c := range w.Components {
		if !supplied[c.Name] {
			steps = append(steps, step{"building " + c.Name,
				func(ctx context.Context) (payload.File, error) { return w.build(ctx, c) }})
		}
	}
	for _, p := range payload.Parts() {
		buildable := slices.ContainsFunc(w.Components, func(c component) bool { return c.Name == p.Name })
		switch {
		case supplied[p.Name]:
			steps = append(steps, step{"taking " + p.Name,
				func(context.Context) (payload.File, error) { return w.take(p.Name) }})
		case !buildable:
			missing = append(missing, step{"missing " + p.Name, func(context.Context) (payload.File, error) {
				w.builder.Lacks(p.Name, "it has no Go module and was not supplied")
				return payload.File{}, nil
			}})
		}
	}
	return append(steps, missing...)
}

// build builds a component and adds it.
func (w *work) build(ctx context.Context, c component) (payload.File, error) {
	v, source := pinned{Version: w.Version}, "this source tree"
	if c.Module != "" {
		var err error
		if v, err = w.tools.version(ctx, c.Dir, c.Module); err != nil {
			return payload.File{}, err
		}
		source = c.Module + "@" + v.Version
	}
	exe := filepath.Join(w.scratch, c.Name)
	if err := w.tools.build(ctx, c, v, exe); err != nil {
		return payload.File{}, err
	}
	if err := w.notices.note(c, exe); err != nil {
		return payload.File{}, err
	}
	return w.add(c.Name, v.Version, source, exe)
}

// take adds a supplied executable.
func (w *work) take(name string) (payload.File, error) {
	path := filepath.Join(w.Supplied, name)
	version, err := suppliedVersion(path)
	if err != nil {
		return payload.File{}, err
	}
	return w.add(name, version, "supplied", path)
}

func (w *work) add(name, version, source, path string) (f payload.File, err error) {
	if err = checkExecutable(path); err != nil {
		return payload.File{}, err
	}
	content, err := os.Open(path)
	if err != nil {
		return payload.File{}, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	return w.builder.Add(name, version, source, content)
}
