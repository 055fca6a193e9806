// Renders a Helm chart with what Helm itself renders it with: Go's text/template and the sprig functions, and the few
// that Helm adds (include, required, .Files.Get). For machines without helm: it knows no
// dependencies, hooks or cluster.
//
//	main CHART <values-and-release.json >{template: text}.json
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
)

type files string

func (f files) Get(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(string(f), name))
	return string(content), err
}

func render(chart string) (map[string]string, error) {
	var given map[string]interface{}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return nil, err
	}
	given["Files"] = files(chart)
	root := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if list, isList := value.([]interface{}); value == nil || value == "" || isList && len(list) == 0 {
			return nil, errors.New(message)
		}
		return value, nil
	}
	root.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err := root.New(filepath.Base(path)).Parse(string(content)); err != nil {
			return nil, err
		}
	}
	rendered := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".yaml") {
			var text strings.Builder
			if err := root.ExecuteTemplate(&text, name, given); err != nil {
				return nil, err
			}
			rendered[name] = text.String()
		}
	}
	return rendered, nil
}

func main() {
	rendered, err := render(os.Args[1])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(rendered)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
