# docker build -t rosewood .                                  for processors
# docker build -t rosewood --build-arg DEVICE=gpu .           for GPUs; run it with: docker run --gpus all ...
# docker run --rm -v "$PWD/runs:/app/runs" rosewood demo
#
# On Linux, pip finds a build of torch that brings CUDA: that is what DEVICE=gpu takes. DEVICE=cpu takes the build whose
# version ends in +cpu. This assumes that the network of the build reaches PyTorch's own package index, which uv knows
# by itself. Where it does not, name an index that has this build: --build-arg PIP_EXTRA_INDEX_URL=...
# If neither has it, the build fails; it never takes CUDA in silence.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim
ARG DEVICE=cpu
ARG EXTRAS=demo,lexicon,lora,tune
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN version=$(sed -n 's/^torch==//p' constraints.txt) \
    && sed -i '/^torch==/d' constraints.txt \
    && case "$DEVICE" in \
        gpu) pip install --no-cache-dir "torch==$version" ;; \
        cpu) if [ -n "$PIP_EXTRA_INDEX_URL" ]; then \
                pip install --no-cache-dir "torch==$version+cpu"; \
            else \
                pip install --no-cache-dir uv \
                && uv pip install --system --no-cache --torch-backend cpu -c constraints.txt "torch==$version" \
                && pip uninstall --yes uv; \
            fi ;; \
        *) echo "DEVICE is cpu or gpu, not $DEVICE" >&2; exit 1 ;; \
    esac \
    && pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" \
    && rm -rf /src
WORKDIR /app
ENTRYPOINT ["rosewood"]
CMD ["--help"]
